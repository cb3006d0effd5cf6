//! The sink in the engine: accepted by Duly, read by a subscriber.

use std::{collections::BTreeSet, time::Duration};

use duly::{Message, SinkOptions};
use duly_core::RetryPolicy;
use testkit::{
    engine,
    servers::mosquitto::{Mosquitto, installed},
};

use crate::{ids, reader::Reader, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_published_and_what_may_not_be_written_is_dead() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    let mut reader = Reader::of(broker.port(), "orders/#");
    // The default is 16 tries within an hour and a half.
    let retry = RetryPolicy { attempts: 5, min: Duration::from_millis(10), ..RetryPolicy::default() };
    let options = SinkOptions { retry: Some(retry), ..SinkOptions::default() };
    let duly = engine::with_sink(sink_to(&broker), options).await;
    duly.send(Message::to("events/closed/x").id("dead").text("body")).await.unwrap();
    engine::deliver_all(&duly, "orders/new", 1).await;
    let there = tokio::task::block_in_place(|| ids(&mut reader));
    assert_eq!(there.iter().collect::<BTreeSet<_>>().len(), 200);
    duly.shutdown().await.unwrap();
}
