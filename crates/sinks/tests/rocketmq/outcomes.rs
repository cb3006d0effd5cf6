//! When an outcome is reported.

use std::sync::{Arc, Mutex};

use duly_core::Outcomes;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    peer::{Peer, Reply},
    sink_with, to,
};

#[tokio::test]
async fn a_message_without_an_answer_holds_up_no_other_of_its_call() {
    // More than may be under way at a time, so that a window that waits for its first would stand still.
    const COUNT: usize = 200;
    let broker = Peer::broker(|request| match &*request.id() {
        "m0" => Reply::Silence,
        _ => Reply::ok(Value::Null),
    })
    .await;
    let namesrv = Peer::namesrv(&[&broker]).await;
    let sink = sink_with(&namesrv.address, "request_timeout = '20s'");
    let batch: Vec<_> = (0..COUNT).map(|n| to("orders", &format!("m{n}"))).collect();
    let (known, mut all) = mpsc::unbounded_channel();
    let call = tokio::spawn(async move {
        let report = |index, result: Result<String, _>| known.send((index, result.is_ok())).unwrap();
        sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    });
    let mut seen = Vec::new();
    while seen.len() < COUNT - 1 {
        let (index, is_ok) = all.recv().await.unwrap();
        assert!(is_ok && index != 0, "{index}");
        seen.push(index);
    }
    assert!(!call.is_finished(), "the first is still waited for");
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
    let namesrv = Peer::namesrv(&[&broker]).await;
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
