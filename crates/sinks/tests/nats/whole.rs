//! The sink in the engine: accepted by Duly, stored once.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::RetryOverride;
use duly_stores::MemoryStore;
use testkit::servers::{
    nats::{Nats, installed},
    wait_until,
};

use crate::{ids, orders, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_in_the_stream_once_and_what_nobody_wants_is_dead() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_to(&nats), SinkOptions::default())
        .start()
        .await
        .unwrap();
    let once = RetryOverride { attempts: Some(1), ..RetryOverride::default() };
    duly.send(Message::to("events/nobody.wants.this").id("dead").retry(once)).await.unwrap();
    for n in 0..200 {
        let message = Message::to("events/orders.new").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered and one is dead", Duration::from_secs(20), || {
            let stats = duly.stats();
            stats.delivered >= 200 && stats.dead >= 1
        });
    });
    let mut there = ids(&mut stream).await;
    assert_eq!(there.len(), 200);
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 200);
    duly.shutdown().await.unwrap();
}
