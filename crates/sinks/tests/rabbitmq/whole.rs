//! The sink in the engine: accepted by Duly, confirmed by the broker.

use std::time::Duration;

use duly::{Message, RetryOverride, SinkOptions};
use testkit::{
    engine,
    servers::rabbitmq::{installed, shared},
};

use crate::{Reader, sink_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_in_the_queue_once_and_what_nobody_wants_is_dead() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.queue().await;
    let duly = engine::with_sink(sink_with(&shared().url(), ""), SinkOptions::default()).await;
    let twice =
        RetryOverride { attempts: Some(2), min: Some(Duration::from_millis(10)), ..RetryOverride::default() };
    duly.send(Message::to("events/no-such-queue").id("dead").text("body").retry(twice)).await.unwrap();
    engine::deliver_all(&duly, &queue, 1).await;
    let mut there = reader.ids(&queue).await;
    assert_eq!(there.len(), 200);
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 200);
    duly.shutdown().await.unwrap();
}
