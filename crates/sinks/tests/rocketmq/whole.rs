//! The sink in the engine: accepted by Duly, a message in the end.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_stores::MemoryStore;
use testkit::servers::{rocketmq::installed, wait_until};

use crate::{fresh_topic, ids, shared, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once() {
    if !installed() {
        return;
    }
    let topic = fresh_topic();
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_to(shared()), SinkOptions::default())
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
    let mut there = ids(shared(), &topic).await;
    there.dedup();
    assert_eq!((there.len(), ids(shared(), &topic).await.len()), (200, 200));
}
