//! What each failure is taken for.

use duly_core::{DeliveryResult, SinkErrorKind};
use testkit::servers::rocketmq::{Options, Rocketmq, installed};

use crate::{BREAKS, fresh_topic, ids, one, shared, sink_to, sink_with, to, until_taken};

#[tokio::test]
async fn nobody_there_is_unreachable_and_so_is_somebody_who_does_not_speak_it() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let sink = sink_with(&address.to_string(), "request_timeout = '1s'");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    }
}

#[tokio::test]
async fn the_first_name_server_that_answers_will_do() {
    if !installed() {
        return;
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sink = sink_with(&format!("{closed},{}", shared().namesrv()), "");
    sink.probe().await.unwrap();
    one(&sink, &fresh_topic(), "a").await.unwrap();
}

#[tokio::test]
async fn a_swallowed_acknowledgement_is_unknown_and_the_next_try_has_the_same_id() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    one(&sink, &topic, "a").await.unwrap();
    let _alone = BREAKS.lock().await;
    // The connection of this message alone.
    shared().proxy().cut_after(b"duly-id\\u0001swallowed", 1);
    let error = one(&sink, &topic, "swallowed").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unknown, "it was sent: {}", error.detail);
    one(&sink, &topic, "swallowed").await.unwrap();
    assert_eq!(ids(shared(), &topic).await, ["a", "swallowed", "swallowed"]);
}

#[tokio::test]
async fn a_broker_that_hangs_leaves_the_outcome_unknown_and_comes_back() {
    if !installed() {
        return;
    }
    let servers = Rocketmq::with(Options { makes_topics: true, ..Options::default() });
    let (sink, topic) = (sink_with(&servers.namesrv(), "request_timeout = '7s'"), fresh_topic());
    one(&sink, &topic, "a").await.unwrap();
    servers.pause();
    let error = one(&sink, &topic, "b").await.unwrap_err();
    assert_eq!((error.kind, &*error.detail), (SinkErrorKind::Unknown, "no answer in time"));
    servers.cont();
    until_taken(&sink, &topic, "b").await;
    assert_eq!(ids(&servers, &topic).await, ["a", "b", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_in_mid_batch_and_started_again_has_all_of_them() {
    if !installed() {
        return;
    }
    let servers = Rocketmq::with(Options { makes_topics: true, ..Options::default() });
    let (sink, topic) = (sink_to(&servers), fresh_topic());
    one(&sink, &topic, "first").await.unwrap();
    let batch: Vec<_> = (0..3000).map(|n| to(&topic, &format!("m{n}"))).collect();
    let (mut outcomes, ()) = tokio::join!(sink.deliver(&batch), async {
        tokio::task::block_in_place(|| servers.kill());
    });
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    let allowed = [SinkErrorKind::Unknown, SinkErrorKind::Unreachable];
    assert!(
        !failed.is_empty() && failed.iter().all(|error| allowed.contains(&error.kind)),
        "{:?}",
        failed.first()
    );
    let error = one(&sink, &topic, "away").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
    tokio::task::block_in_place(|| servers.start());
    until_taken(&sink, &topic, "last").await;
    let unknown = |outcomes: &[DeliveryResult]| {
        outcomes
            .iter()
            .filter(|one| matches!(one, Err(error) if error.kind == SinkErrorKind::Unknown))
            .count()
    };
    let (mut left, mut allowed) = (batch.clone(), 0);
    for _ in 0..20 {
        allowed += unknown(&outcomes);
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
    let mut there = ids(&servers, &topic).await;
    let copies = there.len();
    there.dedup();
    assert_eq!(there.len(), 3002);
    assert!(copies - 3002 <= allowed, "{copies}, and {allowed} outcomes were unknown");
}
