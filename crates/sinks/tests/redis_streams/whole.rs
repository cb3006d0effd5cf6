//! The sink in the engine: accepted by Duly, appended once, the marker taken away.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use testkit::servers::{
    redis::{Redis, installed},
    wait_until,
};

use crate::{ids, markers};

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
