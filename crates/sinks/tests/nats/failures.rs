//! What each failure is taken for.

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use duly_core::{Body, Properties, SinkErrorKind};
use testkit::servers::nats::{Nats, installed};

use crate::{failure, ids, one, orders, sink_to, sink_with, stream, to};

#[tokio::test]
async fn a_wrong_password_pauses_the_lane_and_so_does_none() {
    if !installed() {
        return;
    }
    let nats = Nats::with("authorization { user: ann, password: right }");
    for who in ["ann:wrong@", "nobody:right@", "token@", ""] {
        let sink = sink_with(&format!("nats://{who}127.0.0.1:{}", nats.port()), "");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
        assert!(!error.detail.contains("wrong") && !error.detail.contains("right"), "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
    let sink = sink_with(&format!("nats://ann:right@127.0.0.1:{}", nats.port()), "");
    sink.probe().await.unwrap();
}

#[tokio::test]
async fn a_subject_without_a_stream_is_refused_alone_until_there_is_one() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let sink = sink_to(&nats);
    let error = one(&sink, "orders.new", "a").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused);
    assert!(error.detail.contains("no stream has the subject \"orders.new\""), "{}", error.detail);
    let mut stream = orders(&nats).await;
    let outcomes = sink.deliver(&[to("orders.new", "a"), to("bills", "b"), to("orders", "c")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
    assert_eq!(ids(&mut stream).await, ["a", "c"]);
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_the_servers_words() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let config = Config { max_message_size: 1_000, ..Config::default() };
    stream(&nats.url(), config).await;
    let sink = sink_to(&nats);
    let mut large = to("orders", "large");
    large.message.body = Body::bytes(vec![0; 2_000]);
    let mut huge = to("orders", "huge");
    huge.message.body = Body::bytes(vec![0; 3_000_000]);
    let outcomes = sink.deliver(&[large, huge, to("orders", "small")]).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused, "larger than the stream takes");
    assert!(error.detail.contains("exceeds maximum"), "{}", error.detail);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused, "larger than max_payload");
    assert!(outcomes[2].is_ok(), "{outcomes:?}");
}

#[tokio::test]
async fn a_full_stream_that_takes_no_more_is_throttled() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let config = Config { max_messages: 1, discard: DiscardPolicy::New, ..Config::default() };
    let stream = stream(&nats.url(), config).await;
    let sink = sink_to(&nats);
    one(&sink, "orders", "a").await.unwrap();
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Throttled, "{}", error.detail);
    stream.purge().await.unwrap();
    one(&sink, "orders", "b").await.unwrap();
}

#[tokio::test]
async fn properties_and_topics_that_nats_has_no_place_for_are_refused() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    orders(&nats).await;
    let sink = sink_to(&nats);
    for (name, value) in [("Nats-Rollup", "all"), ("Content-Type", "x"), ("a name", "x")] {
        let mut delivery = to("orders", "a");
        let mut properties = Properties::default();
        properties.set(name, value).unwrap();
        delivery.message.properties = properties;
        let outcomes = sink.deliver(&[delivery, to("orders", "b")]).await;
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused);
        assert!(error.detail.contains(name), "{}", error.detail);
        assert!(outcomes[1].is_ok());
    }
    for topic in ["orders new", "orders..new", "orders.*", "$JS.API.INFO"] {
        assert_eq!(failure(&sink, topic, "a").await, SinkErrorKind::Refused, "{topic}");
    }
}

#[tokio::test]
async fn a_server_without_jetstream_is_waited_for() {
    if !installed() {
        return;
    }
    let nats = Nats::with("accounts { A { users: [{ user: ann, password: x }] } }");
    let sink = sink_with(&format!("nats://ann:x@127.0.0.1:{}", nats.port()), "");
    let error = one(&sink, "orders", "a").await.unwrap_err();
    assert!(
        matches!(error.kind, SinkErrorKind::Misconfigured | SinkErrorKind::Unreachable),
        "this account has none: {error:?}"
    );
    assert!(sink.probe().await.is_err());
}

#[tokio::test]
async fn a_server_that_hangs_leaves_the_outcome_unknown_and_is_not_waited_for_twice() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let sink = sink_with(&nats.url(), "request_timeout = '4s'");
    one(&sink, "orders", "a").await.unwrap();
    nats.pause();
    assert_eq!(failure(&sink, "orders", "b").await, SinkErrorKind::Unknown, "it was sent");
    assert_eq!(failure(&sink, "orders", "c").await, SinkErrorKind::Unreachable, "this one was not");
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    nats.cont();
    let patient = sink_to(&nats);
    for id in ["b", "c"] {
        one(&patient, "orders", id).await.unwrap();
    }
    one(&sink, "orders", "d").await.unwrap();
    let mut there = ids(&mut stream).await;
    there.sort_unstable();
    assert_eq!(there, ["a", "b", "c", "d"], "and b is there once");
}
