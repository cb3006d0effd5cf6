//! Each row of the table in `docs.md`: what a broker answers, and what it is taken for.

use std::sync::atomic::{AtomicBool, Ordering};

use duly_core::{ErrorScope, SinkErrorKind as Kind};
use serde_json::Value;

use crate::{
    one,
    peer::{HEARTBEAT, Peer, Reply, SEND},
    sink_with,
};

const TARGET: ErrorScope = ErrorScope::Target;
const DESTINATION: ErrorScope = ErrorScope::Destination;

/// Code, remark, kind and scope where no other broker is there.
const TABLE: [(i64, &str, Kind, ErrorScope); 24] = [
    (2, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while", Kind::Throttled, TARGET),
    (2, "[REJECTREQUEST]system busy, start flow control for a while", Kind::Throttled, TARGET),
    (2, "[OVERLOAD]system busy, start flow control for a while", Kind::Throttled, TARGET),
    (1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", Kind::Throttled, TARGET),
    (215, "flow control", Kind::Throttled, TARGET),
    (14, "service not available now. It may be caused by: the disk is full", Kind::Unreachable, TARGET),
    (1500, "please go away", Kind::Unreachable, TARGET),
    (1, "in-sync replicas not enough", Kind::Unreachable, TARGET),
    (1, "create mapped file failed, server is busy or broken.", Kind::Unreachable, TARGET),
    (16, "the broker[10.0.0.1] sending message is forbidden", Kind::Unreachable, TARGET),
    (13, "the message is illegal, maybe msg body or properties length not matched", Kind::Refused, TARGET),
    (17, "topic[orders] not exist, apply first please!", Kind::Denied, DESTINATION),
    (16, "Sending message to topic[orders] is forbidden.", Kind::Denied, DESTINATION),
    (16, "User:duly has no permission to access Topic:orders from 10.0.0.9", Kind::Denied, DESTINATION),
    (
        1,
        "org.apache.rocketmq.acl.common.AclException: No default permission for orders",
        Kind::Denied,
        DESTINATION,
    ),
    (29, "The specified topic: a, contains illegal characters", Kind::Denied, DESTINATION),
    (29, "request queueId[7] is illegal, TopicConfig", Kind::Unreachable, DESTINATION),
    (501, "orders-7 does not exit in request process of current broker", Kind::Unreachable, DESTINATION),
    (16, "check signature failed.", Kind::Misconfigured, TARGET),
    (
        1,
        "org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
        Kind::Misconfigured,
        TARGET,
    ),
    (3, " request type 310 not supported", Kind::Misconfigured, TARGET),
    (15, "the version is not supported", Kind::Misconfigured, TARGET),
    (1, "java.lang.NullPointerException", Kind::Unknown, TARGET),
    (999, "words", Kind::Unknown, TARGET),
];
/// The broker has it, with fewer copies or not yet on its disk.
const WEAKER: [(i64, &str); 3] =
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")];

#[tokio::test]
async fn each_answer_is_what_the_table_says() {
    for (code, remark, kind, scope) in TABLE {
        let broker = Peer::broker(move |_| Reply::code(code, remark)).await;
        let namesrv = Peer::namesrv(&[&broker]).await;
        let sink = sink_with(&namesrv.address, "");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!((error.kind, error.scope), (kind, scope), "{code} {remark}: {}", error.detail);
        assert!(error.detail.ends_with(remark.trim()), "{}", error.detail);
        assert_eq!(broker.sent().len(), 1, "the scheduler decides about a second try");
    }
}

#[tokio::test]
async fn a_weaker_acknowledgement_is_one_that_says_so_unless_it_may_not_be() {
    for (code, word) in WEAKER {
        let broker = Peer::broker(move |_| Reply::code(code, "")).await;
        let namesrv = Peer::namesrv(&[&broker]).await;
        let receipt = one(&sink_with(&namesrv.address, ""), "orders", "a").await.unwrap();
        assert!(receipt.ends_with(word), "{receipt}");
        let strict = sink_with(&namesrv.address, "accept_weaker = false");
        let error = one(&strict, "orders", "b").await.unwrap_err();
        assert_eq!(
            error.kind,
            Kind::Throttled,
            "no attempt counts, and no dead letter of what the broker has"
        );
        assert_eq!(error.detail, word);
    }
}

#[tokio::test]
async fn what_one_broker_surely_has_not_got_another_takes() {
    for (code, remark, ..) in TABLE.into_iter().take(10) {
        let busy = Peer::broker(move |_| Reply::code(code, remark)).await;
        let good = Peer::broker(|_| Reply::ok(Value::Null)).await;
        let namesrv = Peer::namesrv(&[&busy, &good]).await;
        let sink = sink_with(&namesrv.address, "");
        let batch: Vec<_> = (0..8).map(|n| crate::to("orders", &format!("m{n}"))).collect();
        for outcome in sink.deliver(&batch).await {
            outcome.unwrap();
        }
        assert_eq!((busy.sent().len(), good.sent().len()), (4, 8), "{code} {remark}");
        // And then it is left alone for a while.
        sink.deliver(&batch).await;
        assert_eq!((busy.sent().len(), good.sent().len()), (4, 16), "{code} {remark}");
    }
}

#[tokio::test]
async fn a_topic_whose_only_broker_is_busy_holds_up_no_other_topic() {
    let busy = Peer::broker(|_| Reply::code(2, "[OVERLOAD]system busy")).await;
    let good = Peer::broker(|_| Reply::ok(Value::Null)).await;
    let (one_of, other) = (vec![busy.address.clone()], vec![good.address.clone()]);
    let namesrv = Peer::start(move |request| {
        Reply::ok(crate::peer::route(if request.topic() == "slow" { &one_of } else { &other }, 4))
    })
    .await;
    let sink = sink_with(&namesrv.address, "");
    one(&sink, "fast", "a").await.unwrap();
    let error = one(&sink, "slow", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (Kind::Throttled, DESTINATION), "{}", error.detail);
}

#[tokio::test]
async fn a_broker_that_did_not_answer_gets_no_message_before_it_answers_a_heartbeat() {
    static IS_BACK: AtomicBool = AtomicBool::new(false);
    let broker = Peer::start(|request| match (request.code, IS_BACK.load(Ordering::SeqCst)) {
        (SEND | HEARTBEAT, false) => Reply::Silence,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let namesrv = Peer::namesrv(&[&broker]).await;
    let sink = sink_with(&namesrv.address, "request_timeout = '2200ms'");
    assert_eq!(one(&sink, "orders", "a").await.unwrap_err().kind, Kind::Unknown);
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable, "no attempt counts: {}", error.detail);
    assert_eq!(broker.sent().len(), 1);
    IS_BACK.store(true, Ordering::SeqCst);
    one(&sink, "orders", "b").await.unwrap();
}
