//! One entry per message, whatever happens to the answers.

use std::sync::Arc;

use duly_core::{Body, Delivery, Fence, Sink, SinkErrorKind, StoredMessage};
use testkit::servers::{
    proxy::Proxy,
    redis::{Redis, installed},
};

use crate::{failure, ids, markers, message, one, sink_to, sink_with, to};

#[tokio::test]
async fn an_answer_that_got_lost_leaves_one_entry() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let sink = sink_with(&format!("redis://127.0.0.1:{}", proxy.port()), "request_timeout = '3s'");
    one(&sink, "orders", "first").await.unwrap();
    proxy.swallow_answers();
    assert_eq!(failure(&sink, "orders", "second").await, SinkErrorKind::Unknown);
    assert_eq!(ids(&redis, "orders"), ["first", "second"], "it had arrived");
    proxy.pass_answers();
    proxy.cut();
    let again = Delivery { attempt: 2, ..to("orders", "second") };
    let receipt = sink.deliver(&[again]).await.remove(0).unwrap();
    assert_eq!(ids(&redis, "orders"), ["first", "second"]);
    let last: redis::streams::StreamRangeReply = redis.run(&["XREVRANGE", "orders", "+", "-", "COUNT", "1"]);
    assert_eq!(receipt, last.ids[0].id, "the receipt is that of the entry that is there");
}

#[tokio::test]
async fn a_batch_does_not_wait_for_its_answers() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let sink = sink_with(&format!("redis://127.0.0.1:{}", proxy.port()), "request_timeout = '3s'");
    one(&sink, "orders", "first").await.unwrap();
    proxy.swallow_answers();
    let batch: Vec<_> = (0..128).map(|n| to("orders", &format!("m{n}"))).collect();
    assert!(sink.deliver(&batch).await.iter().all(Result::is_err));
    assert_eq!(ids(&redis, "orders").len(), 129, "all of it was sent in one go");
}

/// Sends the batch until all of it is acknowledged, always with the same ids. Gives how many tries failed.
async fn insist(sink: &Arc<dyn Sink>, batch: &[Delivery]) -> usize {
    let (mut left, mut failed) = (batch.to_vec(), 0);
    while !left.is_empty() {
        let outcomes = sink.deliver(&left).await;
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            let kind = error.kind;
            assert!(matches!(kind, SinkErrorKind::Unknown | SinkErrorKind::Unreachable), "{error}");
            failed += 1;
        }
        let both = left.into_iter().zip(outcomes);
        left = both.filter(|(_, outcome)| outcome.is_err()).map(|(delivery, _)| delivery).collect();
    }
    failed
}

#[tokio::test]
async fn a_kill_in_mid_batch_leaves_one_entry_of_each() {
    if !installed() {
        return;
    }
    let redis = Arc::new(Redis::single());
    let sink = sink_to(&redis);
    one(&sink, "before", "m").await.unwrap();
    // Killed as soon as a part of it is there; now and then that is too late, and another batch is tried.
    for round in 0..20 {
        let stream = format!("orders{round}");
        let batch: Vec<_> = (0..2_000).map(|n| to(&stream, &format!("m{round}-{n}"))).collect();
        let killer = {
            let (redis, stream) = (redis.clone(), stream.clone());
            std::thread::spawn(move || {
                let mut connection = redis.connection();
                while redis::cmd("XLEN").arg(&stream).query::<usize>(&mut connection).unwrap() == 0 {}
                redis.restart();
            })
        };
        let failed = insist(&sink, &batch).await;
        killer.join().unwrap();
        let mut there = ids(&redis, &stream);
        let mut want: Vec<_> = batch.iter().map(|delivery| delivery.message.id.to_string()).collect();
        there.sort_unstable();
        want.sort_unstable();
        assert_eq!(there, want, "{failed} failures on the way");
        if failed > 0 {
            return;
        }
    }
    panic!("the kill never met a batch");
}

#[tokio::test]
async fn flushed_scripts_come_back_by_themselves() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    for round in 0..3 {
        redis.run::<()>(&["SCRIPT", "FLUSH"]);
        let batch: Vec<_> = (0..10).map(|n| to("orders", &format!("m{round}-{n}"))).collect();
        assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
    }
    assert_eq!(ids(&redis, "orders").len(), 30);
}

#[tokio::test]
async fn the_markers_of_a_batch_go_once_it_is_recorded() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    one(&sink, "orders", "first").await.unwrap();
    let batch: Vec<_> = (0..128).map(|n| to("orders", &format!("m{n}"))).collect();
    assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
    assert_eq!(markers(&redis).len(), 129);
    sink.settled(&batch).await;
    assert_eq!(markers(&redis), ["duly:mark:{orders}:first"]);
    let ttl: u64 = redis.run(&["PTTL", "duly:mark:{orders}:first"]);
    assert!((86_000_000..=86_400_000).contains(&ttl), "a day, if nobody comes: {ttl}");

    let retried = Delivery { attempt: 2, ..to("orders", "first") };
    sink.settled(&[retried]).await;
    let ttl: u64 = redis.run(&["PTTL", "duly:mark:{orders}:first"]);
    assert!((200_000..=300_000).contains(&ttl), "an earlier try may still be on its way: {ttl}");
}

#[tokio::test]
async fn another_content_under_the_same_id_is_another_message() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    one(&sink, "orders", "a").await.unwrap();
    let other =
        StoredMessage { body: Body::text("accepted afresh after a cancel"), ..message("orders", "a") };
    let other = Delivery::new(other, 1);
    for _ in 0..2 {
        sink.deliver(std::slice::from_ref(&other)).await.remove(0).unwrap();
    }
    assert_eq!(ids(&redis, "orders"), ["a", "a"]);
}

#[tokio::test]
async fn two_equal_payloads_are_two_entries() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let outcomes = sink_to(&redis).deliver(&[to("orders", "a"), to("orders", "b"), to("orders", "b")]).await;
    let receipts: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids(&redis, "orders"), ["a", "b"]);
    assert_eq!(receipts[1], receipts[2]);
}

#[tokio::test]
async fn a_node_that_lost_its_right_appends_nothing() {
    if !installed() {
        return;
    }
    let server = Redis::single();
    let sink = sink_to(&server);
    let by = |token, id: &str| Delivery {
        fence: Some(Fence { scope: "store/orders/3".into(), token }),
        ..to("orders", id)
    };
    sink.deliver(&[by(5, "a")]).await.remove(0).unwrap();
    sink.settled(&[by(5, "a")]).await;
    // Another node took over, and has delivered something.
    sink.deliver(&[by(6, "b")]).await.remove(0).unwrap();
    sink.settled(&[by(6, "b")]).await;
    // The first wakes with what it had in hand.
    let refused = sink.deliver(&[by(5, "b"), by(5, "c")]).await;
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert!(error.detail.contains("another node"), "{error}");
    }
    // Rights of other shards, and of other stores, are not touched by that.
    let other =
        Delivery { fence: Some(Fence { scope: "store/orders/4".into(), token: 1 }), ..to("orders", "d") };
    sink.deliver(&[other, by(6, "e")]).await.into_iter().for_each(|outcome| _ = outcome.unwrap());
    assert_eq!(server.run::<u64>(&["XLEN", "orders"]), 4);
}
