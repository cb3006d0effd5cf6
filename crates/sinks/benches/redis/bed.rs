//! A Redis of its own for each case, and what it says of itself.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use duly::{Duly, Sink, SinkOptions, SystemClock};
use duly_core::{Body, MessageId, SinkName, Store, StoredMessage, Timestamp, store::Insert};
use duly_sinks::SinkConfig;
use duly_stores::{
    RedisStore,
    redis::{Options, StreamLimits},
};
use testkit::{
    bench::{process, report::quantile},
    servers::redis::Redis,
};

/// The stream, and the sink's name.
pub(crate) const STREAM: &str = "orders";
pub(crate) const SINK: &str = "events";

/// A server that does not rewrite its append-only file in the middle of a case: that would take the other core, and fall now into
/// one case and now into another.
pub(crate) fn server() -> Redis {
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]);
    redis
}

/// What a case cost.
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    /// The part of one core that Redis used.
    pub(crate) redis_share: f64,
}

/// Measures from its making.
pub(crate) struct Watch<'a> {
    redis: &'a Redis,
    began: Instant,
    cpu: f64,
}

impl<'a> Watch<'a> {
    pub(crate) fn start(redis: &'a Redis) -> Self {
        Self { redis, cpu: cpu(redis), began: process::now() }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn end(self, count: usize) -> Cost {
        let seconds = self.seconds();
        Cost { per_second: count as f64 / seconds, redis_share: (cpu(self.redis) - self.cpu) / seconds }
    }
}

/// Processor seconds of the server so far.
fn cpu(redis: &Redis) -> f64 {
    ["used_cpu_sys", "used_cpu_user"].iter().map(|name| info(redis, "cpu", name)).sum()
}

/// One number of `INFO`.
pub(crate) fn info(redis: &Redis, section: &str, name: &str) -> f64 {
    let text: String = redis.run(&["INFO", section]);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().parse().unwrap()
}

/// p50 and p99 of how much later than due the entries of the stream were made, in ms. An entry's id is its time.
pub(crate) fn lateness(redis: &Redis) -> (f64, f64) {
    let entries: Vec<(String, Vec<Vec<u8>>)> = redis.run(&["XRANGE", STREAM, "-", "+"]);
    let mut late: Vec<f64> = entries.iter().map(|(id, fields)| millis(id) - due(fields)).collect();
    late.sort_by(f64::total_cmp);
    (quantile(&late, 0.5), quantile(&late, 0.99))
}

fn millis(entry: &str) -> f64 {
    entry.split('-').next().unwrap().parse().unwrap()
}

fn due(fields: &[Vec<u8>]) -> f64 {
    let place = fields.iter().position(|field| field == b"duly-due").unwrap();
    std::str::from_utf8(&fields[place + 1]).unwrap().parse().unwrap()
}

/// Sleeps a moment: servers and clocks of others are waited for.
pub(crate) fn rest(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark goes by real time")]
    std::thread::sleep(span);
}

/// The same without holding up the runtime.
pub(crate) async fn pause(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark goes by real time")]
    tokio::time::sleep(span).await;
}

/// Milliseconds since 1970 as Redis counts them.
pub(crate) fn redis_now(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = redis.run(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// One node: a store and a Duly on it that delivers.
pub(crate) struct Node {
    pub(crate) store: Arc<RedisStore>,
    pub(crate) clock: Arc<duly_stores::ServerClock>,
    pub(crate) duly: Duly,
}

pub(crate) async fn node(redis: &Redis, instance: u64) -> Node {
    let machine = Arc::new(SystemClock::new().unwrap());
    let options = Options { node: format!("node-{instance}"), ..Options::new(instance) };
    let (store, clock) = RedisStore::join(&redis.url(), options, machine.clone()).await.unwrap();
    let (store, clock) = (Arc::new(store), Arc::new(clock));
    let sink: SinkConfig = SinkConfig::RedisStreams(duly_sinks::RedisStreamsConfig {
        url: Some(redis.url().as_str().into()),
        ..Default::default()
    });
    let sink: Arc<dyn Sink> = sink.build(machine).unwrap();
    let in_store = store.in_store_delivery(SinkName::parse(SINK).unwrap(), StreamLimits::default()).unwrap();
    let duly = Duly::builder()
        .store(store.clone())
        .clock(clock.clone())
        .sink(SINK, sink, SinkOptions::default())
        .in_store_delivery(SINK, in_store)
        .start()
        .await
        .unwrap();
    Node { store, clock, duly }
}

/// Message number `n` to `topic` of `sink`.
pub(crate) fn message(n: usize, (sink, topic): (&str, &str), due: Timestamp, body: usize) -> Insert {
    let random = (n as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let id = MessageId::generate(due, random);
    let mut message = StoredMessage::new(id, SinkName::parse(sink).unwrap(), topic.parse().unwrap(), due);
    message.body = Body::bytes(vec![b'x'; body]);
    Insert { id_is_generated: true, ..Insert::new(message) }
}

/// Inserts many, a thousand at a time.
pub(crate) async fn insert(node: &Node, all: impl Iterator<Item = Insert>) {
    let mut all = all.peekable();
    while all.peek().is_some() {
        let batch: Vec<Insert> = all.by_ref().take(1000).collect();
        node.store.insert(duly::Clock::now(&*node.clock), batch).await.unwrap();
    }
}
