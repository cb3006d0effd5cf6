//! Two masters, one with a slave, and two name servers.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::{ErrorScope, MessageId, Sink, SinkErrorKind, StoredMessage};
use duly_stores::MemoryStore;
use testkit::{
    servers::{
        rocketmq::{Cluster, installed},
        wait_until,
    },
    sink,
};
use tokio::sync::Mutex;

use crate::{one, reader, sink_with, to};

/// Messages in the test of a kill, and the time in which they come due.
const COUNT: u64 = 2_000;
const SPAN_MS: u64 = 2_000;

/// One at a time: each test breaks something of it, and mends it.
async fn cluster() -> tokio::sync::MutexGuard<'static, Cluster> {
    static CLUSTER: OnceLock<Mutex<Cluster>> = OnceLock::new();
    let cluster = tokio::task::block_in_place(|| CLUSTER.get_or_init(|| Mutex::new(Cluster::with(&[]))));
    cluster.lock().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_killed_under_load_costs_nothing_and_the_other_goes_on() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let [a, b] = cluster.masters();
    tokio::task::block_in_place(|| cluster.make_topic("killed", &[a, b]));
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_with(&cluster.namesrv(), ""), SinkOptions::default())
        .start()
        .await
        .unwrap();
    for n in 0..COUNT {
        let message = Message::to_sink("events", "killed").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n * SPAN_MS / COUNT))).await.unwrap();
    }
    let limit = Duration::from_secs(60);
    tokio::task::block_in_place(|| {
        wait_until("some are delivered", limit, || duly.stats().delivered >= COUNT / 4);
        b.kill();
        wait_until("the rest is delivered, by one master", limit, || duly.stats().delivered >= COUNT);
    });
    assert_eq!(duly.stats().dead, 0);
    duly.shutdown().await.unwrap();
    let there: BTreeSet<String> = tokio::task::block_in_place(|| {
        b.start();
        let all = [a, b].map(|master| reader::read(&master.address(), "killed"));
        all.iter().flatten().map(|arrival| arrival.id.to_string()).collect()
    });
    assert_eq!(there.len() as u64, COUNT, "and nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_whose_master_is_away_waits_and_its_neighbours_do_not() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let [a, b] = cluster.masters();
    tokio::task::block_in_place(|| {
        cluster.make_topic("headless", &[a]);
        cluster.make_topic("other", &[b]);
        a.kill();
        // The name servers have seen it go; the slave is still there.
        cluster.wait_for_route("headless", |route| !route.contains(&a.address()));
    });
    let sink = sink_with(&cluster.namesrv(), "");
    let error = one(&sink, "headless", "a").await.unwrap_err();
    let expected = (SinkErrorKind::Unreachable, ErrorScope::Destination);
    assert_eq!((error.kind, error.scope), expected, "{}", error.detail);
    one(&sink, "other", "b").await.unwrap();
    sink.probe().await.unwrap();
    tokio::task::block_in_place(|| {
        a.start();
        cluster.wait_for_route("headless", |route| route.contains(&a.address()));
    });
    one(&sink, "headless", "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_hangs_delays_nobody() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let [a, b] = cluster.masters();
    tokio::task::block_in_place(|| cluster.make_topic("named", &[a, b]));
    let [first, second] = cluster.namesrvs();
    first.pause();
    // Each has to ask, and is answered by the other name server.
    let sink = || sink_with(&cluster.namesrv(), "request_timeout = '60s'");
    let (one_sink, other) = (sink(), sink());
    let requested = async {
        one_sink.probe().await.unwrap();
        one(&one_sink, "named", "a").await.unwrap();
        one(&other, "named", "b").await.unwrap();
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), requested).await;
    second.pause();
    // Now none answers, and what is known still counts.
    let known = tokio::time::timeout(Duration::from_secs(20), one(&one_sink, "named", "c")).await;
    first.cont();
    second.cont();
    in_time.unwrap();
    known.unwrap().unwrap();
}

/// The cluster with the topic `lossless` on both masters.
struct Killed<'a>(&'a Cluster);

#[async_trait]
impl sink::Cluster for Killed<'_> {
    fn sink(&self) -> Arc<dyn Sink> {
        sink_with(&self.0.namesrv(), "")
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        to("lossless", id.as_str()).message
    }

    async fn kill_one(&self) {
        tokio::task::block_in_place(|| self.0.masters()[1].kill());
    }

    async fn restore(&self) {
        tokio::task::block_in_place(|| self.0.masters()[1].start());
    }

    async fn ids(&self) -> BTreeSet<MessageId> {
        let masters = self.0.masters();
        let all = tokio::task::block_in_place(|| {
            masters.each_ref().map(|master| reader::read(&master.address(), "lossless"))
        });
        all.into_iter().flatten().map(|arrival| arrival.id).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let [a, b] = cluster.masters();
    tokio::task::block_in_place(|| cluster.make_topic("lossless", &[a, b]));
    sink::a_server_killed_under_load_loses_nothing(&Killed(&cluster)).await;
}
