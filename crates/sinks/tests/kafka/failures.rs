//! What each failure is taken for.

use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::kafka::{Kafka, PASSWORD, USER, installed, shared};

use crate::{ids, one, sink_to, sink_with, to, topic_of, until_taken};

#[tokio::test]
async fn a_wrong_password_pauses_the_lane_and_so_does_none() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 1).await;
    let wrong = sink_with(&kafka.guarded(), &format!("user = '{USER}'\npassword = 'wrong'"));
    let error = one(&wrong, &topic, "a").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
    assert!(!error.detail.contains("wrong"), "{}", error.detail);
    let error = wrong.probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let right = sink_with(&kafka.guarded(), &format!("user = '{USER}'\npassword = '{PASSWORD}'"));
    right.probe().await.unwrap();
    one(&right, &topic, "b").await.unwrap();
    assert_eq!(ids(kafka, &topic).await, ["b"]);
}

#[tokio::test]
async fn nobody_there_is_unreachable_and_so_is_somebody_who_does_not_speak_kafka() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let sink = sink_with(&address.to_string(), "request_timeout = '2s'");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    }
}

#[tokio::test]
async fn a_swallowed_acknowledgement_is_unknown_and_the_next_try_has_the_same_id() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 1).await;
    let sink = sink_with(&kafka.proxied(), "request_timeout = '4s'");
    let proxy = kafka.proxy();
    one(&sink, &topic, "a").await.unwrap();
    proxy.swallow_answers();
    let error = one(&sink, &topic, "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unknown, "it was sent: {}", error.detail);
    assert_eq!(error.scope, ErrorScope::Destination, "the leader of its partition is silent");
    let error = one(&sink, &topic, "c").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this one was not: {}", error.detail);
    proxy.pass_answers();
    proxy.cut();
    until_taken(&sink, &topic, "b").await;
    let there = ids(kafka, &topic).await;
    assert_eq!(there.first().unwrap(), "a");
    assert!((1..=2).contains(&there.iter().filter(|id| *id == "b").count()), "{there:?}");
    assert!(!there.contains(&"c".into()), "{there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_in_mid_batch_and_started_again_has_all_of_them() {
    if !installed() {
        return;
    }
    let kafka = Kafka::start_new();
    let (sink, topic) = (sink_to(&kafka), topic_of(&kafka, 3).await);
    one(&sink, &topic, "first").await.unwrap();
    let batch: Vec<_> = (0..5000).map(|n| to(&topic, &format!("m{n}"))).collect();
    let outcomes = {
        let sending = sink.deliver(&batch);
        let killing = async { tokio::task::block_in_place(|| kafka.kill()) };
        tokio::join!(sending, killing).0
    };
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    let allowed = [SinkErrorKind::Unknown, SinkErrorKind::Unreachable];
    assert!(
        !failed.is_empty() && failed.iter().all(|error| allowed.contains(&error.kind)),
        "{:?}",
        failed.first()
    );
    tokio::task::block_in_place(|| kafka.start());
    until_taken(&sink, &topic, "last").await;
    let mut left = batch.clone();
    let mut outcomes = outcomes;
    for _ in 0..20 {
        left = left
            .into_iter()
            .zip(outcomes)
            .filter(|(_, outcome)| outcome.is_err())
            .map(|(each, _)| each)
            .collect();
        if left.is_empty() {
            break;
        }
        outcomes = sink.deliver(&left).await;
    }
    assert!(left.is_empty(), "{} were never taken", left.len());
    let mut there = ids(&kafka, &topic).await;
    there.dedup();
    assert_eq!(there.len(), 5002);
}
