//! The sink into Redis Streams against real servers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod cluster;
mod config;
mod entries;
mod failures;
mod idle;
mod killed;
mod moved;
mod once;
mod tls;
mod whole;

use std::sync::Arc;

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use redis::streams::StreamRangeReply;
use testkit::{
    servers::redis::Redis,
    sink::{failure, message, one, to},
};

/// A sink to `url`, with more settings.
fn sink_with(url: &str, settings: &str) -> Arc<dyn Sink> {
    let text = format!("kind = 'redis_streams'\nurl = '{url}'\n{settings}");
    let config: SinkConfig = toml::from_str(&text).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(redis: &Redis) -> Arc<dyn Sink> {
    sink_with(&redis.url(), "")
}

/// The ids of the messages in a stream, in the order of its entries.
fn ids(redis: &Redis, stream: &str) -> Vec<String> {
    let entries: StreamRangeReply = redis.run(&["XRANGE", stream, "-", "+"]);
    entries.ids.iter().map(|entry| entry.get("duly-id").unwrap()).collect()
}

fn markers(redis: &Redis) -> Vec<String> {
    redis.run(&["KEYS", "duly:mark:*"])
}
