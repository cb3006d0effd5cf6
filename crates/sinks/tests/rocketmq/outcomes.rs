//! When an outcome is reported.

use std::sync::{Arc, Mutex};

use duly_core::Outcomes;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    peer::{Peer, Reply, route},
    sink_with, to,
};

/// Queues of a topic: more than requests may be under way at a time, so that a window that waits for its first would stand still.
const QUEUES: u32 = 100;

/// A name server that knows every topic with these queues.
async fn namesrv_of(broker: &Peer) -> Peer {
    let masters = vec![broker.address.clone()];
    Peer::start(move |_| Reply::ok(route(&masters, QUEUES))).await
}

#[tokio::test]
async fn a_request_without_an_answer_holds_up_no_other_of_its_call() {
    // Two in each request.
    const COUNT: usize = 200;
    let broker = Peer::broker(|request| match request.id() {
        "m0" => Reply::Silence,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let namesrv = namesrv_of(&broker).await;
    let sink = sink_with(&namesrv.address, "request_timeout = '20s'");
    let batch: Vec<_> = (0..COUNT).map(|n| to("orders", &format!("m{n}"))).collect();
    let (known, mut all) = mpsc::unbounded_channel();
    let call = tokio::spawn(async move {
        let report = |index, result: Result<String, _>| known.send((index, result.is_ok())).unwrap();
        sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    });
    let mut seen = Vec::new();
    while seen.len() < COUNT - 2 {
        let (index, is_ok) = all.recv().await.unwrap();
        assert!(is_ok && index % 100 != 0, "{index}");
        seen.push(index);
    }
    assert!(!call.is_finished(), "the first is still waited for, and the one that went with it");
    assert_eq!(broker.sends().iter().filter(|request| request.ids.len() == 2).count(), 100);
    call.abort();
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let broker = Peer::broker(|request| match request.id().trim_start_matches('m').parse::<u32>().unwrap() {
        99 => Reply::ok(Value::Null),
        n if n % 3 == 0 => Reply::Later,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let namesrv = namesrv_of(&broker).await;
    let sink = sink_with(&namesrv.address, "");
    let batch: Vec<_> = (0..100).map(|n| to("orders", &format!("m{n}"))).collect();
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let report = |index, result: Result<String, _>| {
        result.unwrap();
        order.lock().unwrap().push(index);
    };
    sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 100);
    assert!(!order.is_sorted());
}
