//! Name servers that are silent, forgetful or in the middle of a failover.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use duly_core::{ErrorScope, SinkErrorKind};
use serde_json::{Value, json};

use crate::{
    one,
    peer::{CLUSTER, HEARTBEAT, NO_TOPIC, Peer, ROUTE, Reply, cluster, route},
    sink_with, to,
};

async fn good() -> Peer {
    Peer::broker(|_| Reply::ok(Value::Null)).await
}

#[tokio::test]
async fn a_silent_name_server_is_not_waited_for() {
    let (silent, broker) = (Peer::start(|_| Reply::Silence).await, good().await);
    let namesrv = Peer::namesrv(&[&broker]).await;
    let sink = sink_with(&format!("{},{}", silent.address, namesrv.address), "");
    sink.probe().await.unwrap();
    one(&sink, "orders", "a").await.unwrap();
}

#[tokio::test]
async fn a_name_server_that_knows_nothing_yet_does_not_outvote_another() {
    let empty = Peer::start(|request| match request.code {
        CLUSTER => Reply::ok(cluster(&[])),
        _ => Reply::code(NO_TOPIC, "No topic route info in name server"),
    })
    .await;
    let broker = good().await;
    let namesrv = Peer::namesrv(&[&broker]).await;
    let sink = sink_with(&format!("{},{}", empty.address, namesrv.address), "");
    sink.probe().await.unwrap();
    one(&sink, "orders", "a").await.unwrap();
}

#[tokio::test]
async fn the_last_route_counts_while_no_name_server_answers() {
    let fails = Arc::new(AtomicBool::new(false));
    let theirs = fails.clone();
    let broker = Peer::broker(move |_| match theirs.swap(false, Ordering::SeqCst) {
        true => Reply::code(1, "java.lang.RuntimeException"),
        false => Reply::ok(Value::Null),
    })
    .await;
    let (masters, answers) = (vec![broker.address.clone()], Arc::new(AtomicBool::new(true)));
    let theirs = answers.clone();
    let namesrv = Peer::start(move |_| match theirs.load(Ordering::SeqCst) {
        true => Reply::ok(route(&masters, 4)),
        false => Reply::Silence,
    })
    .await;
    let sink = sink_with(&namesrv.address, "");
    one(&sink, "orders", "a").await.unwrap();
    answers.store(false, Ordering::SeqCst);
    fails.store(true, Ordering::SeqCst);
    one(&sink, "orders", "b").await.unwrap_err();
    // In doubt, and nobody to ask.
    one(&sink, "orders", "b").await.unwrap();
    sink.probe().await.unwrap();
}

#[tokio::test]
async fn a_topic_without_a_master_waits_for_one() {
    let broker = good().await;
    let slave = json!({ "brokerDatas": [{ "cluster": "c", "brokerName": "b0", "brokerAddrs": { "1": broker.address } }],
        "queueDatas": [{ "brokerName": "b0", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0 }] });
    let masters = vec![broker.address.clone()];
    let namesrv = Peer::start(move |request| match (request.code, request.topic()) {
        (CLUSTER, _) => Reply::ok(cluster(&masters)),
        (_, "orders") => Reply::ok(slave.clone()),
        _ => Reply::code(NO_TOPIC, "none"),
    })
    .await;
    let sink = sink_with(&namesrv.address, "");
    let error = one(&sink, "orders", "a").await.unwrap_err();
    let expected = (SinkErrorKind::Unreachable, ErrorScope::Destination);
    assert_eq!((error.kind, error.scope), expected, "an ordinary failover: {}", error.detail);
    let error = one(&sink, "nowhere", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination));
}

#[tokio::test]
async fn a_topic_that_goes_with_its_broker_waits_and_one_that_is_deleted_is_denied() {
    // What the name server knows: 0 everything, 1 only the other broker, 2 both brokers and not the topic.
    let state = Arc::new(AtomicI64::new(0));
    let (theirs, broker) = (state.clone(), Peer::broker(|_| Reply::code(17, "not exist")).await);
    let (all, other) = (vec![broker.address.clone(), "127.0.0.1:1".into()], vec!["127.0.0.1:1".to_owned()]);
    let only = vec![broker.address.clone()];
    let namesrv = Peer::start(move |request| match (request.code, theirs.load(Ordering::SeqCst)) {
        (CLUSTER, 1) => Reply::ok(cluster(&other)),
        (CLUSTER, _) => Reply::ok(cluster(&all)),
        (_, 0) if request.topic() == "orders" => Reply::ok(route(&only, 4)),
        _ => Reply::code(NO_TOPIC, "none"),
    })
    .await;
    for (now, kind) in [(1, SinkErrorKind::Unreachable), (2, SinkErrorKind::Denied)] {
        state.store(0, Ordering::SeqCst);
        let sink = sink_with(&namesrv.address, "");
        one(&sink, "orders", "a").await.unwrap_err();
        state.store(now, Ordering::SeqCst);
        // A route is not asked for twice within a second; then it is.
        let mut error = one(&sink, "orders", "a").await.unwrap_err();
        while error.detail.contains("TOPIC_NOT_EXIST") {
            error = one(&sink, "orders", "a").await.unwrap_err();
        }
        assert_eq!((error.kind, error.scope), (kind, ErrorScope::Destination), "{}", error.detail);
    }
}

#[tokio::test]
async fn a_topic_that_is_made_by_sending_has_no_more_queues_than_are_asked_for() {
    let broker = Peer::broker(|request| match request.queue() {
        0..4 => Reply::ok(Value::Null),
        more => Reply::code(29, &format!("request queueId[{more}] is illegal")),
    })
    .await;
    let masters = vec![broker.address.clone()];
    let namesrv = Peer::start(move |request| match request.topic() {
        "TBW102" => Reply::ok(route(&masters, 8)),
        _ => Reply::code(NO_TOPIC, "none"),
    })
    .await;
    let batch: Vec<_> = (0..16).map(|n| to("new", &format!("m{n}"))).collect();
    for outcome in sink_with(&namesrv.address, "").deliver(&batch).await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn one_master_that_answers_is_enough_for_a_probe() {
    let hangs = Peer::start(|request| match request.code {
        HEARTBEAT => Reply::Silence,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let broker = good().await;
    let namesrv = Peer::namesrv(&[&hangs, &broker]).await;
    sink_with(&namesrv.address, "").probe().await.unwrap();
    let alone = Peer::namesrv(&[&hangs]).await;
    let error = sink_with(&alone.address, "request_timeout = '1s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable);
}

#[tokio::test]
async fn queues_of_a_dead_broker_are_skipped() {
    let closed =
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let broker = good().await;
    let masters = vec![closed, broker.address.clone()];
    let namesrv = Peer::start(move |request| match request.code {
        ROUTE => Reply::ok(route(&masters, 4)),
        _ => Reply::ok(cluster(&masters)),
    })
    .await;
    let sink = sink_with(&namesrv.address, "");
    for round in 0..3 {
        let batch: Vec<_> = (0..16).map(|n| to("orders", &format!("m{round}-{n}"))).collect();
        for outcome in sink.deliver(&batch).await {
            outcome.unwrap();
        }
    }
    let sent = broker.sent();
    assert_eq!(sent.len(), 48);
    let of_queue = |queue| sent.iter().filter(|(_, of)| *of == queue).count();
    assert!((0..4).all(|queue| of_queue(queue) >= 8), "those that are left share what it would have got");
}
