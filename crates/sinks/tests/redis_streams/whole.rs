//! The sink in the engine: accepted by Duly, appended once, the marker taken away.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock, millis, seconds};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use redis::streams::StreamRangeReply;
use testkit::servers::{
    redis::{Redis, installed},
    wait_until,
};

use crate::{ids, markers, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once_and_no_marker_stays() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let config = format!("kind = 'redis_streams'\nurl = '{}'", redis.url());
    let config: SinkConfig = toml::from_str(&config).unwrap();
    let clock = Arc::new(SystemClock::new().unwrap());
    let sink = config.build(clock.clone()).unwrap();
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(clock)
        .sink("events", sink, SinkOptions::default())
        .start()
        .await
        .unwrap();
    for n in 0..200 {
        let message = Message::to("events/orders").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered and recorded", Duration::from_secs(20), || {
            redis.run::<usize>(&["XLEN", "orders"]) >= 200 && markers(&redis).is_empty()
        });
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
