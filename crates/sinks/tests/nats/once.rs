//! Lost acknowledgements, dead servers, and no copies.

use std::collections::BTreeSet;

use duly_core::{Delivery, SinkErrorKind};
use testkit::servers::{
    nats::{Nats, installed},
    proxy::Proxy,
};

use crate::{failure, ids, one, orders, sink_to, sink_with, to};

#[tokio::test]
async fn a_second_try_is_acknowledged_as_a_duplicate_and_stored_once() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let sink = sink_to(&nats);
    assert_eq!(one(&sink, "orders", "a").await.unwrap(), "ORDERS:1");
    assert_eq!(one(&sink, "orders", "a").await.unwrap(), "ORDERS:1 duplicate");
    assert_eq!(ids(&mut stream).await, ["a"]);
}

#[tokio::test]
async fn a_lost_acknowledgement_is_unknown_and_the_same_id_again_makes_no_copy() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let proxy = Proxy::to(nats.port());
    let sink = sink_with(&format!("nats://127.0.0.1:{}", proxy.port()), "request_timeout = '4s'");
    one(&sink, "orders", "a").await.unwrap();
    proxy.swallow_answers();
    assert_eq!(failure(&sink, "orders", "b").await, SinkErrorKind::Unknown);
    proxy.pass_answers();
    assert_eq!(one(&sink, "orders", "b").await.unwrap(), "ORDERS:2 duplicate");
    assert_eq!(ids(&mut stream).await, ["a", "b"]);
}

#[tokio::test]
async fn a_connection_that_is_cut_is_noticed_at_once() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    orders(&nats).await;
    let proxy = Proxy::to(nats.port());
    let sink = sink_with(&format!("nats://127.0.0.1:{}", proxy.port()), "request_timeout = '10m'");
    one(&sink, "orders", "a").await.unwrap();
    proxy.cut_on(b"duly-id: b", 1);
    assert_eq!(failure(&sink, "orders", "b").await, SinkErrorKind::Unknown, "long before its time is over");
    one(&sink, "orders", "b").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_mid_batch_and_started_again_has_everything_once() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    orders(&nats).await;
    let sink = sink_to(&nats);
    let mut left: Vec<Delivery> = (0..3_000).map(|n| to("orders", &format!("m{n}"))).collect();
    let mut kills = 0;
    while !left.is_empty() {
        let (answers, ()) = tokio::join!(sink.deliver(&left), async {
            if kills < 2 {
                tokio::task::spawn_blocking(|| {}).await.unwrap();
                tokio::task::block_in_place(|| nats.restart());
                kills += 1;
            }
        });
        let taken: BTreeSet<usize> = (0..left.len()).filter(|n| answers[*n].is_ok()).collect();
        let mut place = 0;
        left.retain_mut(|delivery| {
            delivery.attempt += 1;
            place += 1;
            !taken.contains(&(place - 1))
        });
    }
    let mut there = ids(&mut orders(&nats).await).await;
    assert_eq!(there.len(), 3_000, "and nothing twice");
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 3_000);
}
