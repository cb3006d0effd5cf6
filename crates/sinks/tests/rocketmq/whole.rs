//! The sink in the engine: accepted by Duly, a message in the end.

use duly::SinkOptions;
use testkit::{engine, servers::rocketmq::installed};

use crate::{fresh_topic, ids, shared, sink_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once() {
    if !installed() {
        return;
    }
    let topic = fresh_topic();
    let duly = engine::with_sink(sink_to(shared()), SinkOptions::default()).await;
    engine::deliver_all(&duly, &topic, 0).await;
    duly.shutdown().await.unwrap();
    let mut there = ids(shared(), &topic).await;
    there.dedup();
    assert_eq!((there.len(), ids(shared(), &topic).await.len()), (200, 200));
}
