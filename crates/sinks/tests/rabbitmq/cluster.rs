//! Three nodes with quorum queues, one of which is killed under load.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use lapin::types::{AMQPValue, FieldTable};
use testkit::servers::{
    rabbitmq::{Cluster, installed},
    wait_until,
};

use crate::Reader;

const MESSAGES: u64 = 1_000;
/// They come due over this time; the kill is in the middle.
const SPAN_MS: u64 = 3_000;

/// A quorum queue with its leader at that node.
async fn queue_at(cluster: &Cluster, node: usize) -> String {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    Reader::new(&cluster.node(node).url()).await.queue_with(arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_a_queue_is_killed_and_nothing_is_lost_or_dead() {
    if !installed() {
        return;
    }
    let cluster = tokio::task::block_in_place(Cluster::start);
    let (hit, other) = (queue_at(&cluster, 0).await, queue_at(&cluster, 1).await);
    // The connection is to the second node, and the first one is killed: only its queue is hit.
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'rabbitmq'\nurl = {}", cluster.urls_from(1))).unwrap();
    let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink, SinkOptions::default())
        .start()
        .await
        .unwrap();
    for n in 0..MESSAGES {
        for queue in [&hit, &other] {
            let message = Message::to(format!("events/{queue}").as_str()).id(format!("{queue}-{n}"));
            let after = Duration::from_millis(500 + n * SPAN_MS / MESSAGES);
            duly.send(message.text("body").after(after)).await.unwrap();
        }
    }
    tokio::task::block_in_place(|| {
        let delivered = |count| move |duly: &Duly| duly.stats().delivered >= count;
        let limit = Duration::from_secs(120);
        let begun = delivered(MESSAGES / 2);
        wait_until("some are delivered", limit, || begun(&duly));
        cluster.node(0).kill();
        let all = delivered(2 * MESSAGES);
        wait_until("all are delivered", limit, || all(&duly));
    });
    let totals = duly.totals().await.unwrap();
    assert_eq!((totals.delivered, totals.dead), (2 * MESSAGES, 0), "{totals:?}");
    duly.shutdown().await.unwrap();
    let reader = Reader::new(&cluster.node(1).url()).await;
    let found: BTreeSet<String> = reader.ids(&hit).await.into_iter().collect();
    assert_eq!(found.len() as u64, MESSAGES, "nothing is lost");
    let others = reader.ids(&other).await;
    assert_eq!(others.len() as u64, MESSAGES, "the other queue noticed nothing: each came once");
}
