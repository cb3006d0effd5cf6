//! The sink in the engine: accepted by Duly, a record in the end.

use duly::SinkOptions;
use testkit::{
    engine,
    servers::kafka::{installed, shared},
};

use crate::{sink_to, sorted_ids, topic_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_delivers_is_there_once() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 3).await;
    let duly = engine::with_sink(sink_to(kafka), SinkOptions::default()).await;
    engine::deliver_all(&duly, &topic, 0).await;
    duly.shutdown().await.unwrap();
    let mut there = tokio::task::block_in_place(|| sorted_ids(&kafka.address(), &topic));
    assert_eq!(there.len(), 200);
    there.dedup();
    assert_eq!(there.len(), 200);
}
