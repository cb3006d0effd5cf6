//! kill -9 of a process in the middle of its work.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis_mq::{Entry, RedisMq, Settings};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, entries, hear, next, pending, quick, wait_until};

const URL: &str = "REDIS_MQ_TEST_URL";

/// Runs the test `role` of this program in a process of its own.
fn process(role: &str, redis: &Redis) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--nocapture"]).env(URL, redis.url());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The address, if this is such a process.
fn told() -> Option<String> {
    std::env::var_os(URL)?.into_string().ok()
}

/// Takes events and never finishes one.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_never_finishes() {
    let Some(url) = told() else { return };
    let settings =
        Settings { store: "other".into(), processing_timeout: Duration::from_secs(3600), ..quick() };
    let mq = RedisMq::connect_with(&url, settings).await.unwrap();
    mq.listener("order.placed", |_: Entry<Order>| std::future::pending::<Result<(), String>>())
        .start()
        .await
        .unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_held_is_taken_over() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, quick()).await;
    let mut child = process("killed::as_a_process_that_never_finishes", &redis);
    let there = || redis.run::<bool>(&["EXISTS", "order.placed"]);
    wait_until("it listens", there);
    for number in 0..5 {
        mq.send("order.placed", &Order { number }).await.unwrap();
    }
    wait_until("it has them", || pending(&redis, "order.placed") == 5);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut hearing = hear::<Order>(&mq, "order.placed").await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(next(&mut hearing).await.value.number);
    }
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    wait_until("all are acknowledged", || pending(&redis, "order.placed") == 0);
    mq.shutdown().await.unwrap();
}

/// Sends for later and delivers, as fast as it can.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_sends_for_later() {
    let Some(url) = told() else { return };
    let mq = RedisMq::connect_with(&url, quick()).await.unwrap();
    let mut accepted = redis::Client::open(url).unwrap().get_connection().unwrap();
    for number in 0.. {
        let id = mq.delay_send("order.unpaid", &Order { number }, Duration::from_millis(20)).await.unwrap();
        // A ledger outside of the process, which outlives it.
        redis::cmd("RPUSH").arg("ledger").arg(id.as_str()).exec(&mut accepted).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_sent_for_later_becomes_one_entry_each() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    for kill in 1..=3 {
        let mut child = process("killed::as_a_process_that_sends_for_later", &redis);
        wait_until("it delivers", || redis.run::<usize>(&["XLEN", "order.unpaid"]) >= kill * 100);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mq = connect(&redis, quick()).await;
    let accepted: Vec<String> = redis.run(&["LRANGE", "ledger", "0", "-1"]);
    let arrived = || -> Vec<String> {
        entries(&redis, "order.unpaid").iter().map(|entry| entry["duly-id"].clone()).collect()
    };
    wait_until("all have arrived", || {
        let arrived = arrived();
        accepted.iter().all(|id| arrived.contains(id))
    });
    mq.shutdown().await.unwrap();
    let mut arrived = arrived();
    let count = arrived.len();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), count, "one entry each");
}
