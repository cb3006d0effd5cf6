//! A node with nothing to do leaves Redis alone.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_stores::{
    RedisStore,
    redis::{Options, StreamLimits},
};
use testkit::servers::{
    redis::{Redis, installed},
    wait_until,
};

use crate::sink_to;

const SHARDS: u64 = 16;

/// How many scripts were called so far; what a script does is no call.
fn scripts(redis: &Redis) -> u64 {
    let stats: String = redis.run(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

fn seconds(redis: &Redis) -> u64 {
    let (seconds, _): (u64, u64) = redis.run(&["TIME"]);
    seconds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_asks_each_shard_less_than_once_a_second() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let machine = Arc::new(SystemClock::new().unwrap());
    let (store, clock) = RedisStore::join(&redis.url(), Options::new(1), machine).await.unwrap();
    let store = Arc::new(store);
    let in_store = store.in_store_delivery("events".parse().unwrap(), StreamLimits::default()).unwrap();
    let duly = Duly::builder()
        .store(store)
        .clock(Arc::new(clock))
        .sink("events", sink_to(&redis), SinkOptions::default())
        .in_store_delivery("events", in_store)
        .start()
        .await
        .unwrap();
    // Something far away waits, and nothing is due.
    duly.send(Message::to("events/orders").after(Duration::from_secs(3600))).await.unwrap();
    let wait = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        tokio::task::block_in_place(|| wait_until(what, Duration::from_secs(60), is_so));
    };
    let settled = seconds(&redis) + 5;
    wait("the sweep has found its idle pace", &mut || seconds(&redis) >= settled);
    let (began, before, sweeps) = (seconds(&redis), scripts(&redis), scripts(&redis) / SHARDS);
    wait("several sweeps", &mut || scripts(&redis) / SHARDS >= sweeps + 5);
    let (passed, calls) = (seconds(&redis) - began, scripts(&redis) - before);
    assert!(calls < passed * SHARDS, "{calls} calls in {passed} seconds for {SHARDS} shards");
    duly.shutdown().await.unwrap();
}
