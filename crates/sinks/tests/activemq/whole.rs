//! The sink in the engine: accepted by Duly, in the queue at last.

use std::{collections::BTreeSet, time::Duration};

use duly::{Message, SinkOptions};
use duly_core::RetryPolicy;
use testkit::{
    engine,
    servers::activemq::{installed, shared},
};

use crate::{ids, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_in_the_queue_and_what_may_not_be_written_is_dead() {
    if !installed() {
        return;
    }
    // The default is 16 tries within an hour and a half.
    let retry = RetryPolicy { attempts: 5, min: Duration::from_millis(10), ..RetryPolicy::default() };
    let options = SinkOptions { retry: Some(retry), ..SinkOptions::default() };
    let duly = engine::with_sink(sink_to(shared()), options).await;
    duly.send(Message::to("events/closed").id("dead").text("body")).await.unwrap();
    engine::deliver_all(&duly, "orders.whole", 1).await;
    let there = ids(shared(), "orders.whole").await;
    assert_eq!(there.iter().collect::<BTreeSet<_>>().len(), 200);
    duly.shutdown().await.unwrap();
}
