//! What a broker may answer to a batch, and what becomes of each of its messages.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use duly_core::{Delivery, Sink, SinkErrorKind};
use serde_json::Value;

use crate::{
    peer::{Peer, Reply, Request, SEND, SEND_BATCH},
    sink_with, to,
};

/// So many messages, all to one queue.
fn batch(count: usize) -> Vec<Delivery> {
    let keyed = |n: usize| {
        let mut delivery = to("orders", &format!("m{n:02}"));
        delivery.message.key = Some("customer-7".parse().unwrap());
        delivery
    };
    (0..count).map(keyed).collect()
}

async fn sink_to(broker: &Peer) -> Arc<dyn Sink> {
    sink_with(&Peer::namesrv(&[broker]).await.address, "")
}

/// How many messages each request had.
fn counts(broker: &Peer) -> Vec<usize> {
    broker.sends().iter().map(|request| request.ids.len()).collect()
}

fn is_batch(request: &Request) -> bool {
    request.code == SEND_BATCH
}

#[tokio::test]
async fn a_batch_is_one_request_with_what_rocketmqs_own_client_says() {
    let broker = Peer::broker(|_| Reply::ok(Value::Null)).await;
    let outcomes = sink_to(&broker).await.deliver(&batch(5)).await;
    let receipts: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    // Queue 0, from 1 on: what the peer says.
    let expected: Vec<_> = (0..5).map(|n| format!("{n:032X} 0:{}", n + 1)).collect();
    assert_eq!(receipts, expected);
    let [request] = &broker.sends()[..] else { panic!("one request") };
    assert_eq!((request.code, request.ids.len()), (SEND_BATCH, 5));
    let field = |name: &str| request.fields[name].as_str().unwrap();
    assert_eq!((field("b"), field("f"), field("j"), field("m")), ("orders", "0", "0", "true"));
    // Without a key of its own, a broker would keep it from the consumers of a topic that has whole batches.
    assert!(field("i").starts_with("UNIQ_KEY\u{1}") && field("i").ends_with("\u{2}WAIT\u{1}true\u{2}"));
    assert!(!field("i").contains("duly-id") && !field("i").contains("DELAY"));
}

#[tokio::test]
async fn a_broker_that_knows_no_batches_gets_each_message_alone_from_then_on() {
    let broker = Peer::broker(|request| match is_batch(request) {
        true => Reply::code(3, " request type 320 not supported"),
        false => Reply::ok(Value::Null),
    })
    .await;
    let sink = sink_to(&broker).await;
    for _ in 0..2 {
        for outcome in sink.deliver(&batch(4)).await {
            outcome.unwrap();
        }
    }
    assert_eq!(counts(&broker), [4, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_broker_that_comes_back_is_asked_for_batches_again() {
    let is_old = Arc::new(AtomicBool::new(true));
    let theirs = is_old.clone();
    let broker = Peer::broker(move |request| match (theirs.load(Ordering::SeqCst), is_batch(request)) {
        (true, true) => Reply::code(3, " request type 320 not supported"),
        (_, false) if request.id() == "gone" => Reply::Silence,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let sink = sink_with(&Peer::namesrv(&[&broker]).await.address, "request_timeout = '2200ms'");
    sink.deliver(&batch(2)).await;
    // Its next version.
    is_old.store(false, Ordering::SeqCst);
    sink.deliver(&batch(2)).await;
    assert_eq!(counts(&broker), [2, 1, 1, 1, 1], "it is not asked while it is there");
    let error = sink.deliver(&[to("orders", "gone")]).await.remove(0).unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unknown);
    for outcome in sink.deliver(&batch(2)).await {
        outcome.unwrap();
    }
    assert_eq!(counts(&broker)[5..], [1, 2]);
}

#[tokio::test]
async fn a_batch_that_is_refused_is_sent_in_halves_and_the_bad_message_fails_alone() {
    let broker = Peer::broker(|request| match request.ids.iter().any(|id| id == "m05") {
        true => Reply::code(13, "the message is illegal"),
        false => Reply::ok(Value::Null),
    })
    .await;
    for (n, outcome) in sink_to(&broker).await.deliver(&batch(8)).await.into_iter().enumerate() {
        match outcome {
            Ok(_) => assert_ne!(n, 5),
            Err(error) => assert_eq!((n, error.kind), (5, SinkErrorKind::Refused), "{}", error.detail),
        }
    }
    assert_eq!(counts(&broker), [8, 4, 4, 2, 2, 1, 1]);
    let last: Vec<_> = broker.sends()[5..].iter().map(|request| request.code).collect();
    assert_eq!(last, [SEND, SEND], "one message is no batch");
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_sent_in_halves_and_the_next_is_smaller() {
    let words =
        "java.lang.RuntimeException: message body size exceeded, org.apache.rocketmq.store.MessageExtEncoder";
    let broker = Peer::broker(move |request| match request.ids.len() > 8 {
        true => Reply::code(1, words),
        false => Reply::ok(Value::Null),
    })
    .await;
    let sink = sink_to(&broker).await;
    for _ in 0..2 {
        for outcome in sink.deliver(&batch(32)).await {
            outcome.unwrap();
        }
    }
    assert_eq!(counts(&broker), [32, 16, 16, 8, 8, 8, 8, 8, 8, 8, 8]);
}

#[tokio::test]
async fn a_batch_with_an_answer_that_nobody_knows_is_unknown_for_each() {
    let broker = Peer::broker(|request| match request.ids.iter().any(|id| id == "m02") {
        true => Reply::code(1, "java.lang.NullPointerException"),
        false => Reply::ok(Value::Null),
    })
    .await;
    let sink = sink_to(&broker).await;
    for outcome in sink.deliver(&batch(4)).await {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Unknown, "{}", error.detail);
    }
    assert_eq!(counts(&broker), [4], "some of it may have arrived");
    // The one that is to blame is so for nobody else a second time.
    let again: Vec<_> = batch(4).into_iter().map(|each| Delivery { attempt: 2, ..each }).collect();
    let failed: Vec<_> = sink.deliver(&again).await.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, true, false]);
    assert_eq!(counts(&broker), [4, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_batch_that_one_broker_surely_has_not_got_another_takes() {
    let busy = Peer::broker(|_| Reply::code(2, "[TIMEOUT_CLEAN_QUEUE]broker busy")).await;
    let good = Peer::broker(|_| Reply::ok(Value::Null)).await;
    let sink = sink_with(&Peer::namesrv(&[&busy, &good]).await.address, "");
    let batch: Vec<_> = (0..80).map(|n| to("orders", &format!("m{n}"))).collect();
    for outcome in sink.deliver(&batch).await {
        outcome.unwrap();
    }
    assert_eq!(counts(&busy), [10; 4]);
    assert_eq!(counts(&good), [10; 8]);
}

#[tokio::test]
async fn a_weaker_acknowledgement_is_one_of_each_message_of_a_batch() {
    let broker = Peer::broker(|_| Reply::code(11, "")).await;
    let sink = sink_to(&broker).await;
    for outcome in sink.deliver(&batch(3)).await {
        let receipt = outcome.unwrap();
        assert!(receipt.ends_with(" SLAVE_NOT_AVAILABLE"), "{receipt}");
    }
    let strict = sink_with(&Peer::namesrv(&[&broker]).await.address, "accept_weaker = false");
    for outcome in strict.deliver(&batch(3)).await {
        assert_eq!(outcome.unwrap_err().kind, SinkErrorKind::Throttled);
    }
    assert_eq!(counts(&broker), [3, 3]);
}
