//! The sink into RocketMQ against a real name server and a real broker.
#![cfg(feature = "rocketmq")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod batch;
mod batch_refusals;
mod batches;
mod cluster;
mod config;
mod failures;
mod guarded;
mod messages;
mod outcomes;
mod peer;
mod reader;
mod rights;
mod routes;
mod table;
mod weaker;
mod whole;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use testkit::{
    servers::rocketmq::{Options, Rocketmq},
    sink::{message, one, to},
};

/// Shared by the tests here, with a proxy before the broker; nobody stops it.
fn shared() -> &'static Rocketmq {
    static SHARED: OnceLock<Rocketmq> = OnceLock::new();
    SHARED.get_or_init(|| Rocketmq::with(Options { proxied: true, makes_topics: true, ..Options::default() }))
}

/// Who breaks a connection at the proxy: it breaks on one needle at a time.
static BREAKS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A sink to `namesrv`, with more settings.
fn sink_with(namesrv: &str, settings: &str) -> Arc<dyn Sink> {
    let text = format!("kind = 'rocketmq'\nnamesrv = '{namesrv}'\n{settings}");
    let config: SinkConfig = toml::from_str(&text).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(servers: &Rocketmq) -> Arc<dyn Sink> {
    sink_with(&servers.namesrv(), "")
}

/// A topic that nobody else has; it is made by sending to it.
fn fresh_topic() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("orders-{}", LAST.fetch_add(1, Ordering::SeqCst))
}

/// Tries until it works: what happened on the way is another test's.
async fn until_taken(sink: &Arc<dyn Sink>, topic: &str, id: &str) {
    for _ in 0..10_000 {
        if one(sink, topic, id).await.is_ok() {
            return;
        }
    }
    panic!("{id} was never taken");
}

/// The ids of all that a topic has, in order of the letters.
async fn ids(servers: &Rocketmq, topic: &str) -> Vec<String> {
    let (broker, topic) = (servers.broker(), topic.to_owned());
    let read = tokio::task::spawn_blocking(move || reader::read(&broker, &topic));
    let mut ids: Vec<_> = read.await.unwrap().iter().map(|arrival| arrival.id.to_string()).collect();
    ids.sort_unstable();
    ids
}
