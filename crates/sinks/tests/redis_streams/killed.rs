//! Servers that are killed while messages come due.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, RetryPolicy, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use testkit::servers::{
    redis::{Cluster, Sentinels, installed},
    wait_until,
};
use tokio::task::block_in_place;

use crate::{cluster::stream_of_each, ids};

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

/// One message in each millisecond, to the streams by turns.
async fn load(duly: &Duly, streams: &[String], count: usize) {
    for n in 0..count {
        let message =
            Message::to_sink("events", &streams[n % streams.len()]).id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n as u64))).await.unwrap();
    }
}

fn wait(what: &str, is_so: impl FnMut() -> bool) {
    block_in_place(|| wait_until(what, PATIENCE, is_so));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_cluster_killed_under_load_loses_nothing_and_each_message_is_one_entry() {
    const MESSAGES: usize = 3_000;
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    for node in cluster.nodes() {
        node.run::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let streams = stream_of_each(&cluster);
    let duly = duly_to(&cluster.url()).await;
    load(&duly, &streams, MESSAGES).await;
    wait("it is under load", || duly.stats().delivered as usize >= MESSAGES / 10);
    cluster.nodes()[1].kill();
    let nodes = cluster.nodes();
    let delivered = duly.stats().delivered;
    wait("some have failed, and others go on", || {
        duly.stats().failed > 0 && duly.stats().delivered > delivered
    });
    block_in_place(|| nodes[1].start());
    wait("all is delivered", || duly.stats().delivered as usize >= MESSAGES);
    assert_eq!(duly.stats().dead, 0);
    duly.shutdown().await.unwrap();
    for (place, stream) in streams.iter().enumerate() {
        let mut there = ids(&nodes[place], stream);
        there.sort_unstable();
        let mut sent: Vec<_> = (place..MESSAGES).step_by(3).map(|n| format!("m{n}")).collect();
        sent.sort_unstable();
        assert_eq!(there, sent, "{stream}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_leaves_one_entry_of_each_that_the_replica_has_or_that_was_under_way() {
    const MESSAGES: usize = 3_000;
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let duly = duly_to(&sentinels.url()).await;
    load(&duly, &["orders".to_owned()], MESSAGES).await;
    wait("it is under load", || duly.stats().delivered as usize >= MESSAGES / 10);
    // Redis loses what its replica had not got. So the master answers nothing from here on, until the replica has all of
    // what was answered; what comes meanwhile is under way when it is killed.
    let [old, new] = sentinels.pair();
    old.run::<()>(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    let offset = |name: &str| {
        let reported: String = old.run(&["INFO", "replication"]);
        let at = reported.find(name).unwrap() + name.len();
        reported[at..].chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
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
