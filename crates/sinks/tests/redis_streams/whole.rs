//! The sink in the engine: accepted by Duly, appended once, the marker taken away.

use std::time::Duration;

use duly::{Duly, Message, SinkOptions, millis, seconds};
use redis::streams::StreamRangeReply;
use testkit::{
    engine,
    servers::{
        redis::{Redis, installed},
        wait_until,
    },
};

use crate::{ids, markers, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once_and_no_marker_stays() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let duly = engine::with_sink(sink_to(&redis), SinkOptions::default()).await;
    engine::deliver_all(&duly, "orders", 0).await;
    tokio::task::block_in_place(|| {
        wait_until("all is recorded", Duration::from_secs(20), || markers(&redis).is_empty());
    });
    let mut there = ids(&redis, "orders");
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 200);
    assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 200);
    duly.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_the_work_and_every_message_is_one_entry() {
    if !installed() {
        return;
    }
    const MESSAGES: usize = 600;
    let redis = Redis::single();
    let node = async |name: &str| {
        let builder = Duly::builder().redis(redis.url(), name).lease(seconds(3));
        let options = SinkOptions { timeout: seconds(2), ..SinkOptions::default() };
        builder.sink("events", sink_to(&redis), options).start().await.unwrap()
    };
    let (one, two) = (node("one").await, node("two").await);
    for n in 0..MESSAGES {
        let message =
            Message::to_sink("events", "orders").text(n.to_string()).after(millis((n % 7) as u64 * 100));
        let sender = if n % 2 == 0 { &one } else { &two };
        sender.send(message).await.unwrap();
    }
    let delivered = |duly: &Duly| duly.stats().delivered as usize;
    let patient = |what: &str, done: &dyn Fn() -> bool| {
        tokio::task::block_in_place(|| wait_until(what, Duration::from_secs(30), done));
    };
    patient("all is delivered", &|| delivered(&one) + delivered(&two) >= MESSAGES);
    assert!(delivered(&one) > 0 && delivered(&two) > 0, "{} and {}", delivered(&one), delivered(&two));
    let bodies = |redis: &Redis| {
        let entries: StreamRangeReply = redis.run(&["XRANGE", "orders", "-", "+"]);
        let mut bodies: Vec<usize> =
            entries.ids.iter().map(|entry| entry.get::<String>("body").unwrap().parse().unwrap()).collect();
        bodies.sort_unstable();
        bodies
    };
    assert_eq!(bodies(&redis), (0..MESSAGES).collect::<Vec<_>>());
    assert!(two.totals().await.unwrap().balance());
    // One goes; the other delivers all.
    one.shutdown().await.unwrap();
    for n in MESSAGES..MESSAGES + 64 {
        two.send(Message::to_sink("events", "orders").text(n.to_string())).await.unwrap();
    }
    patient("the other delivers all", &|| bodies(&redis).len() >= MESSAGES + 64);
    two.shutdown().await.unwrap();
    assert_eq!(bodies(&redis), (0..MESSAGES + 64).collect::<Vec<_>>());
}
