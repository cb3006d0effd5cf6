//! The sink in the engine: accepted by Duly, a record in the end.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use testkit::servers::{
    kafka::{installed, shared},
    wait_until,
};

use crate::{sorted_ids, topic_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 3).await;
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'kafka'\nbrokers = '{}'", kafka.address())).unwrap();
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
        let message = Message::to_sink("events", topic.as_str()).id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered", Duration::from_secs(60), || duly.stats().delivered >= 200);
    });
    duly.shutdown().await.unwrap();
    let mut there = tokio::task::block_in_place(|| sorted_ids(&kafka.address(), &topic));
    assert_eq!(there.len(), 200);
    there.dedup();
    assert_eq!(there.len(), 200);
}
