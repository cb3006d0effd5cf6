//! The sink in the engine: accepted by Duly, in the queue at last.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::RetryPolicy;
use duly_stores::MemoryStore;
use testkit::servers::{
    activemq::{installed, shared},
    wait_until,
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
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_to(shared()), options)
        .start()
        .await
        .unwrap();
    duly.send(Message::to("events/closed").id("dead").text("body")).await.unwrap();
    for n in 0..200 {
        let message = Message::to("events/orders.whole").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered and one is dead", Duration::from_secs(60), || {
            let stats = duly.stats();
            stats.delivered >= 200 && stats.dead >= 1
        });
    });
    let there = ids(shared(), "orders.whole").await;
    assert_eq!(there.iter().collect::<BTreeSet<_>>().len(), 200);
    duly.shutdown().await.unwrap();
}
