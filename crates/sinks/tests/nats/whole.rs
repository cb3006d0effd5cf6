//! The sink in the engine: accepted by Duly, stored once.

use duly::{Message, SinkOptions};
use duly_core::RetryOverride;
use testkit::{
    engine,
    servers::nats::{Nats, installed},
};

use crate::{ids, orders, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_in_the_stream_once_and_what_nobody_wants_is_dead() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let duly = engine::with_sink(sink_to(&nats), SinkOptions::default()).await;
    let once = RetryOverride { attempts: Some(1), ..RetryOverride::default() };
    duly.send(Message::to("events/nobody.wants.this").id("dead").retry(once)).await.unwrap();
    engine::deliver_all(&duly, "orders.new", 1).await;
    let mut there = ids(&mut stream).await;
    assert_eq!(there.len(), 200);
    there.sort_unstable();
    there.dedup();
    assert_eq!(there.len(), 200);
    duly.shutdown().await.unwrap();
}
