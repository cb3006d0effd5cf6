//! A server that is killed while messages come due.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, RetryPolicy, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use testkit::servers::{
    redis::{Sentinels, installed},
    wait_until,
};
use tokio::task::block_in_place;

use crate::ids;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);

async fn duly_to(url: &str) -> Duly {
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'redis_streams'\nurl = '{url}'\nrequest_timeout = '4s'")).unwrap();
    let clock = Arc::new(SystemClock::new().unwrap());
    // What is under way when a server goes may be without an answer, once or twice.
    let retry = Some(RetryPolicy { attempts: 5, max: Duration::from_secs(2), ..RetryPolicy::default() });
    Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(clock.clone())
        .sink("events", config.build(clock).unwrap(), SinkOptions { retry, ..SinkOptions::default() })
        .start()
        .await
        .unwrap()
}

/// One message in each millisecond.
async fn load(duly: &Duly, stream: &str, count: usize) {
    for n in 0..count {
        let message = Message::to_sink("events", stream).id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n as u64))).await.unwrap();
    }
}

fn wait(what: &str, is_so: impl FnMut() -> bool) {
    block_in_place(|| wait_until(what, PATIENCE, is_so));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_leaves_one_entry_of_each_that_the_replica_has_or_that_was_under_way() {
    const MESSAGES: usize = 3_000;
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let duly = duly_to(&sentinels.url()).await;
    load(&duly, "orders", MESSAGES).await;
    wait("it is under load", || duly.stats().delivered as usize >= MESSAGES / 10);
    // Redis loses what its replica had not got. So the master answers nothing from here on, until the replica has all of
    // what was answered; what comes meanwhile is under way when it is killed.
    let [old, new] = sentinels.pair();
    old.run::<()>(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    let offset = |name: &str| {
        let told: String = old.run(&["INFO", "replication"]);
        let at = told.find(name).unwrap() + name.len();
        told[at..].chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    wait("the replica has what was answered", || offset(",offset=") >= offset("master_repl_offset:"));
    wait("some are under way", || {
        let blocked: String = old.run(&["INFO", "clients"]);
        !blocked.contains("blocked_clients:0\r")
    });
    block_in_place(|| sentinels.fail_over());
    wait("all is delivered", || duly.stats().delivered as usize >= MESSAGES);
    assert!(duly.stats().failed > 0, "what was under way is tried again");
    assert_eq!(duly.stats().dead, 0);
    duly.shutdown().await.unwrap();
    let mut there = ids(new, "orders");
    there.sort_unstable();
    let mut sent: Vec<_> = (0..MESSAGES).map(|n| format!("m{n}")).collect();
    sent.sort_unstable();
    assert_eq!(there, sent);
}
