//! The sink in the engine: accepted by Duly, confirmed by the broker.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, RetryOverride, SinkOptions, SystemClock};
use duly_stores::MemoryStore;
use testkit::servers::{
    rabbitmq::{installed, shared},
    wait_until,
};

use crate::{Reader, sink_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_in_the_queue_once_and_what_nobody_wants_is_dead() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.queue().await;
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_with(&shared().url(), ""), SinkOptions::default())
        .start()
        .await
        .unwrap();
    let twice =
        RetryOverride { attempts: Some(2), min: Some(Duration::from_millis(10)), ..RetryOverride::default() };
    duly.send(Message::to("events/no-such-queue").id("dead").text("body").retry(twice)).await.unwrap();
    for n in 0..200 {
        let message = Message::to(format!("events/{queue}").as_str()).id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered and one is dead", Duration::from_secs(30), || {
            let stats = duly.stats();
            stats.delivered >= 200 && stats.dead >= 1
        });
    });
    let mut there = reader.ids(&queue).await;
    assert_eq!(there.len(), 200);
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 200);
    duly.shutdown().await.unwrap();
}
