//! Three nodes, one of which is killed: with quorum queues under load, and with a classic queue, which has no other.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use duly::{Duly, Message, RetryPolicy, SinkOptions, SystemClock};
use duly_core::{ErrorScope, MessageId, Sink, SinkErrorKind, StoredMessage};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use lapin::types::{AMQPValue, FieldTable};
use testkit::{
    servers::{
        rabbitmq::{Cluster, installed},
        wait_until,
    },
    sink,
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::{Reader, one, to};

const MESSAGES: u64 = 1_000;
/// They come due over this time; the kill is in the middle.
const SPAN_MS: u64 = 3_000;
/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_secs(120);

/// The cluster of all tests here, all of it running. They kill nodes, so each has it for itself.
async fn cluster() -> MutexGuard<'static, Cluster> {
    static CLUSTER: OnceCell<Mutex<Cluster>> = OnceCell::const_new();
    let start = || async { Mutex::new(tokio::task::block_in_place(Cluster::start)) };
    let cluster = CLUSTER.get_or_init(start).await.lock().await;
    tokio::task::block_in_place(|| cluster.start_missing());
    cluster
}

/// The connection is to the second node: the others may die.
fn sink_to(cluster: &Cluster) -> Arc<dyn Sink> {
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'rabbitmq'\nurl = {}", cluster.urls_from(1))).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

async fn duly_to(sink: Arc<dyn Sink>, options: SinkOptions) -> Duly {
    Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink, options)
        .start()
        .await
        .unwrap()
}

/// A quorum queue with its leader at that node.
async fn queue_at(cluster: &Cluster, node: usize) -> String {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    Reader::new(&cluster.node(node).url()).await.queue_with(arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_a_queue_is_killed_and_nothing_is_lost_or_dead() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    // The first node is killed: only its queue is hit.
    let (hit, other) = (queue_at(&cluster, 0).await, queue_at(&cluster, 1).await);
    let duly = duly_to(sink_to(&cluster), SinkOptions::default()).await;
    for n in 0..MESSAGES {
        for queue in [&hit, &other] {
            let message = Message::to(format!("events/{queue}").as_str()).id(format!("{queue}-{n}"));
            let after = Duration::from_millis(500 + n * SPAN_MS / MESSAGES);
            duly.send(message.text("body").after(after)).await.unwrap();
        }
    }
    tokio::task::block_in_place(|| {
        let delivered = |count| move |duly: &Duly| duly.stats().delivered >= count;
        let begun = delivered(MESSAGES / 2);
        wait_until("some are delivered", LIMIT, || begun(&duly));
        cluster.node(0).kill();
        let all = delivered(2 * MESSAGES);
        wait_until("all are delivered", LIMIT, || all(&duly));
    });
    let totals = duly.totals().await.unwrap();
    assert_eq!((totals.delivered, totals.dead), (2 * MESSAGES, 0), "{totals:?}");
    duly.shutdown().await.unwrap();
    let reader = Reader::new(&cluster.node(1).url()).await;
    let found: BTreeSet<String> = reader.ids(&hit).await.into_iter().collect();
    assert_eq!(found.len() as u64, MESSAGES, "nothing is lost");
    let others = reader.ids(&other).await;
    assert_eq!(others.len() as u64, MESSAGES, "the other queue noticed nothing: each came once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_classic_queue_whose_node_is_down_costs_no_attempt_and_is_served_when_it_is_back() {
    const WAITING: u64 = 20;
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let home = Reader::new(&cluster.node(0).url()).await.queue().await;
    let other = Reader::new(&cluster.node(1).url()).await.queue().await;
    let sink = sink_to(&cluster);
    one(&sink, &home, "before").await.unwrap();
    tokio::task::block_in_place(|| cluster.node(0).kill());
    // What was routed before the others missed the node is rejected.
    let away = async {
        loop {
            let error = one(&sink, &home, "away").await.unwrap_err();
            assert_eq!(error.scope, ErrorScope::Destination, "{error}");
            match error.kind {
                SinkErrorKind::Unreachable => return error,
                kind => assert!(matches!(kind, SinkErrorKind::Throttled | SinkErrorKind::Unknown), "{error}"),
            }
        }
    };
    let error = tokio::time::timeout(LIMIT, away).await.expect("the node is missed");
    assert!(error.detail.contains("is down or inaccessible"), "{error}");
    // One question is enough for all of a call, and a queue that is nowhere is told apart.
    let topics = [home.as_str(), other.as_str(), "nowhere"];
    let batch: Vec<_> = (0..30).map(|n| to(topics[n % 3], &format!("b{n}"))).collect();
    for (n, outcome) in sink.deliver(&batch).await.into_iter().enumerate() {
        let kind = outcome.map_err(|error| (error.kind, error.scope));
        match n % 3 {
            0 => assert_eq!(kind, Err((SinkErrorKind::Unreachable, ErrorScope::Destination))),
            1 => assert!(kind.is_ok(), "{kind:?}"),
            _ => assert_eq!(kind, Err((SinkErrorKind::Denied, ErrorScope::Destination))),
        }
    }
    let retry = RetryPolicy { attempts: 1, max: Duration::from_secs(2), ..RetryPolicy::default() };
    let duly = duly_to(sink, SinkOptions { retry: Some(retry), ..SinkOptions::default() }).await;
    for n in 0..WAITING {
        let message = Message::to_sink("events", home.as_str()).id(format!("m{n}"));
        duly.send(message.text("body")).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("some were tried", LIMIT, || duly.stats().failed > 0);
        cluster.start_missing();
        wait_until("all are delivered", LIMIT, || {
            assert_eq!(duly.stats().dead, 0, "an outage costs no attempt");
            duly.stats().delivered == WAITING
        });
    });
    duly.shutdown().await.unwrap();
    let there = Reader::new(&cluster.node(1).url()).await.ids(&home).await;
    let missing: Vec<_> = (0..WAITING).map(|n| format!("m{n}")).filter(|id| !there.contains(id)).collect();
    assert!(missing.is_empty() && there.contains(&"before".to_owned()), "{missing:?} of {there:?}");
}

/// The cluster with a quorum queue that the first node leads.
struct Killed<'a> {
    cluster: &'a Cluster,
    queue: String,
}

#[async_trait]
impl sink::Cluster for Killed<'_> {
    fn sink(&self) -> Arc<dyn Sink> {
        sink_to(self.cluster)
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        to(&self.queue, id.as_str()).message
    }

    async fn kill_one(&self) {
        tokio::task::block_in_place(|| self.cluster.node(0).kill());
    }

    async fn restore(&self) {
        tokio::task::block_in_place(|| self.cluster.start_missing());
    }

    async fn ids(&self) -> BTreeSet<MessageId> {
        let there = Reader::new(&self.cluster.node(1).url()).await.ids(&self.queue).await;
        there.into_iter().map(|id| id.parse().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let queue = queue_at(&cluster, 0).await;
    sink::a_server_killed_under_load_loses_nothing(&Killed { cluster: &cluster, queue }).await;
}
