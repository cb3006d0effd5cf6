//! The sink into Kafka against a real broker.
#![cfg(feature = "kafka")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod cluster;
mod config;
mod failures;
mod reader;
mod records;
mod rights;
mod scripted;
#[cfg(feature = "kafka-tls")]
mod tls;
mod topics;
mod whole;

use std::{
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use testkit::{
    servers::kafka::Kafka,
    sink::{message, one, to},
};

/// A sink to `brokers`, with more settings.
fn sink_with(brokers: &str, settings: &str) -> Arc<dyn Sink> {
    let text = format!("kind = 'kafka'\nbrokers = '{brokers}'\n{settings}");
    let config: SinkConfig = toml::from_str(&text).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(kafka: &Kafka) -> Arc<dyn Sink> {
    sink_with(&kafka.address(), "")
}

/// A topic that nobody else has.
async fn topic_of(kafka: &Kafka, partitions: i32) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("orders-{}", LAST.fetch_add(1, Ordering::SeqCst));
    reader::make_topic(&kafka.address(), &name, partitions, &[]).await;
    name
}

/// Tries until it works: what happened on the way is another test's.
async fn until_taken(sink: &Arc<dyn Sink>, topic: &str, id: &str) {
    for _ in 0..100 {
        if one(sink, topic, id).await.is_ok() {
            return;
        }
    }
    panic!("{id} was never taken");
}

async fn ids(kafka: &Kafka, topic: &str) -> Vec<String> {
    let (address, topic) = (kafka.address(), topic.to_owned());
    let read = tokio::task::spawn_blocking(move || sorted_ids(&address, &topic));
    tokio::time::timeout(Duration::from_secs(120), read).await.unwrap().unwrap()
}

/// The ids of all that a topic has, in order of the letters.
fn sorted_ids(address: &str, topic: &str) -> Vec<String> {
    let mut ids: Vec<_> = reader::read(address, topic).iter().map(|arrival| arrival.id.to_string()).collect();
    ids.sort_unstable();
    ids
}
