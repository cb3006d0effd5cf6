//! `duly-streams` against real Redis servers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod alarms;
mod blocked_keys;
mod bodies;
mod chaos;
mod configuration;
mod dead_letters;
mod delayed;
mod examples;
mod expiry;
mod failures;
mod join;
mod killed;
mod leader;
mod listener;
mod lock;
mod lost_answers;
mod metrics;
mod order;
mod reclaim;
mod recovery;
mod retry;
mod script;
mod send;
mod server;
mod settle;
mod subscribe;
mod timers;
mod topology;
mod trim;

use std::{collections::HashMap, time::Duration};

use duly_streams::{Entry, Retry, Settings, Streams};
use redis::streams::StreamRangeReply;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use testkit::servers::redis::Redis;
use tokio::sync::mpsc;

/// Whatever should happen has happened by then.
const SOON: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Order {
    number: u64,
}

/// Short times, so that what is tried again is tried soon.
fn quick() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(100),
        processing_timeout: Duration::from_millis(400),
        maintenance_interval: Duration::from_millis(50),
        retry: Retry { min: Duration::from_millis(20), max: Duration::from_millis(50), ..Retry::default() },
        ..Settings::default()
    }
}

async fn connect(redis: &Redis, settings: Settings) -> Streams {
    Streams::connect_with(&redis.url(), settings).await.unwrap()
}

/// Listens, and hands on every entry.
async fn listen<T: DeserializeOwned + Send + 'static>(
    streams: &Streams,
    event: &str,
) -> mpsc::UnboundedReceiver<Entry<T>> {
    let (received, inbox) = mpsc::unbounded_channel();
    let hand_on = move |entry: Entry<T>| {
        let reported = received.send(entry).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams.listener(event, hand_on).start().await.unwrap();
    inbox
}

async fn next<T>(inbox: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(SOON, inbox.recv()).await.expect("in time").expect("the listener is there")
}

/// The entries of a stream: their fields.
fn entries(redis: &Redis, stream: &str) -> Vec<HashMap<String, String>> {
    let range: StreamRangeReply = redis.run(&["XRANGE", stream, "-", "+"]);
    let text = |value: redis::Value| redis::from_redis_value::<String>(value).unwrap();
    let fields = |entry: redis::streams::StreamId| {
        entry.map.into_iter().map(|(name, value)| (name, text(value))).collect()
    };
    range.ids.into_iter().map(fields).collect()
}

/// How many entries of a stream nobody has acknowledged.
fn pending(redis: &Redis, stream: &str) -> usize {
    let (count, ..): (usize, redis::Value, redis::Value, redis::Value) =
        redis.run(&["XPENDING", stream, &Settings::default().group]);
    count
}

/// Waits until it is so.
fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| testkit::servers::wait_until(what, SOON, is_so));
}
