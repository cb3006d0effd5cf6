//! kill -9 of a process in the middle of its work.

use std::{
    collections::BTreeSet,
    process::{Child, Command, Stdio},
    time::Duration,
};

use duly_streams::{Entry, Settings, Streams};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, entries, listen, next, pending, quick, wait_until};

const URL: &str = "DULY_STREAMS_TEST_URL";

/// Runs the test `role` of this program in a process of its own.
fn process(role: &str, redis: &Redis) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--nocapture"]).env(URL, redis.url());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The address, if this is such a process.
fn reported() -> Option<String> {
    std::env::var_os(URL)?.into_string().ok()
}

/// Takes events and never finishes one.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_never_finishes() {
    let Some(url) = reported() else { return };
    let settings = Settings { processing_timeout: Duration::from_secs(3600), ..quick() };
    let streams = Streams::connect_with(&url, settings).await.unwrap();
    streams
        .listener("order.placed", |_: Entry<Order>| std::future::pending::<Result<(), String>>())
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
    let streams = connect(&redis, quick()).await;
    let child = process("killed::as_a_process_that_never_finishes", &redis);
    let there = || redis.run::<bool>(&["EXISTS", "order.placed"]);
    wait_until("it listens", there);
    for number in 0..5 {
        streams.send("order.placed", &Order { number }).await.unwrap();
    }
    wait_until("it has them", || pending(&redis, "order.placed") == 5);
    kill(child);
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(next(&mut inbox).await.value.number);
    }
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    wait_until("all are acknowledged", || pending(&redis, "order.placed") == 0);
    streams.shutdown().await.unwrap();
}

/// More than is delivered before the process is killed, and few enough that the whole stream can be read at each look.
const SENT_MAX: u64 = 3_000;

/// Sends for later and delivers, as fast as it can.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_sends_for_later() {
    let Some(url) = reported() else { return };
    let streams = Streams::connect_with(&url, quick()).await.unwrap();
    let mut accepted = redis::Client::open(url).unwrap().get_connection().unwrap();
    for number in 0..SENT_MAX {
        let id =
            streams.delay_send("order.unpaid", &Order { number }, Duration::from_millis(20)).await.unwrap();
        // A ledger outside of the process, which outlives it.
        redis::cmd("RPUSH").arg("ledger").arg(id.as_str()).exec(&mut accepted).unwrap();
    }
    std::future::pending().await
}

/// What the processes were told was accepted, and what arrived: the ids of messages.
fn ledger(redis: &Redis) -> (Vec<String>, Vec<String>) {
    let arrived = entries(redis, "order.unpaid").iter().map(|entry| entry["duly-id"].clone()).collect();
    (redis.run(&["LRANGE", "ledger", "0", "-1"]), arrived)
}

/// What killed processes had claimed comes back when their leases end, and on a machine with much to do everything takes longer.
const ALL_ARRIVED: Duration = Duration::from_secs(120);

/// All that was accepted arrives, whoever was killed, and all that arrives does so once.
async fn assert_one_entry_each(redis: &Redis) {
    let streams = connect(redis, quick()).await;
    let all_arrived = || {
        let (accepted, arrived) = ledger(redis);
        let arrived: BTreeSet<_> = arrived.into_iter().collect();
        accepted.iter().all(|id| arrived.contains(id))
    };
    tokio::task::block_in_place(|| {
        testkit::servers::wait_until("all have arrived", ALL_ARRIVED, all_arrived);
    });
    streams.shutdown().await.unwrap();
    let (_, arrived) = ledger(redis);
    let once: BTreeSet<_> = arrived.iter().collect();
    assert_eq!(once.len(), arrived.len());
}

fn wait_for_more(redis: &Redis) {
    let arrived = || redis.run::<usize>(&["XLEN", "order.unpaid"]);
    let before = arrived();
    wait_until("more is delivered", || arrived() >= before + 100);
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_sent_for_later_becomes_one_entry_each() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    for _ in 0..3 {
        let child = process("killed::as_a_process_that_sends_for_later", &redis);
        wait_for_more(&redis);
        kill(child);
    }
    assert_one_entry_each(&redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_one_redis_and_what_a_killed_one_held_becomes_one_entry_each() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let start = || process("killed::as_a_process_that_sends_for_later", &redis);
    let (mut older, mut younger) = (start(), start());
    for _ in 0..3 {
        wait_for_more(&redis);
        kill(older);
        // The other goes on, and takes over.
        (older, younger) = (younger, start());
    }
    wait_for_more(&redis);
    kill(older);
    kill(younger);
    assert_one_entry_each(&redis).await;
}
