//! Three brokers, of which one or two go.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use duly::{Duly, Message as Draft, RetryPolicy, SinkOptions, SystemClock};
use duly_core::{Delivery, ErrorScope, MessageId, Sink, SinkErrorKind, StoredMessage};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use testkit::{
    servers::{
        kafka::{Cluster, installed},
        wait_until,
    },
    sink,
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::{message, one, reader, sink_with, sorted_ids, to, until_taken};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cluster of all tests here, all of it running. They stop brokers, so each has it for itself.
async fn cluster() -> MutexGuard<'static, Cluster> {
    static CLUSTER: OnceCell<Mutex<Cluster>> = OnceCell::const_new();
    let start = || async { Mutex::new(tokio::task::block_in_place(Cluster::start_new)) };
    CLUSTER.get_or_init(start).await.lock().await
}

/// A topic with its replicas on these brokers, for each partition; the first leads.
async fn make_topic(cluster: &Cluster, name: &str, replicas: &[&[i32]]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", cluster.addresses()).create().unwrap();
    let partitions = i32::try_from(replicas.len()).unwrap();
    let topic = NewTopic::new(name, partitions, TopicReplication::Variable(replicas));
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let made = admin.create_topics([&topic], &options).await.unwrap();
    made.into_iter().for_each(|one| drop(one.unwrap()));
}

async fn duly_to(cluster: &Cluster, attempts: u32) -> Duly {
    let text = format!("kind = 'kafka'\nbrokers = '{}'", cluster.addresses());
    let config: SinkConfig = toml::from_str(&text).unwrap();
    let clock = Arc::new(SystemClock::new().unwrap());
    let retry = Some(RetryPolicy { attempts, max: Duration::from_secs(5), ..RetryPolicy::default() });
    Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(clock.clone())
        .sink("events", config.build(clock).unwrap(), SinkOptions { retry, ..SinkOptions::default() })
        .start()
        .await
        .unwrap()
}

fn wait_for_end(duly: &Duly, messages: u64) {
    tokio::task::block_in_place(|| {
        wait_until("all is over", PATIENCE, || {
            let stats = duly.stats();
            stats.delivered + stats.dead >= messages
        });
    });
    assert_eq!(duly.stats().dead, 0, "nothing is dead-lettered");
}

/// Tries until it is said that replicas are missing: the cluster misses a broker after seconds.
async fn until_starved(sink: &Arc<dyn Sink>, topic: &str) {
    for n in 0..100 {
        match one(sink, topic, &format!("try-{n}")).await {
            Err(error) if error.kind == SinkErrorKind::Unreachable => {
                assert_eq!(error.scope, ErrorScope::Destination, "{error}");
                if error.detail.contains("in-sync replicas") {
                    return;
                }
            }
            Err(error) => assert_eq!(error.kind, SinkErrorKind::Unknown, "{error}"),
            Ok(_) => {}
        }
    }
    panic!("{topic} never lacks replicas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_three_brokers_stopped_messages_wait_and_go_out_when_one_returns() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let brokers = cluster.addresses();
    reader::make_topic(&brokers, "orders", 3, &[("min.insync.replicas", "2")]).await;
    make_topic(&cluster, "single", &[&[1]]).await;
    let sink = sink_with(&brokers, "");
    until_taken(&sink, "orders", "first").await;
    tokio::task::block_in_place(|| [2, 3].map(|node| cluster.kill(node)));
    until_starved(&sink, "orders").await;
    let outcomes = sink.deliver(&[to("orders", "none"), to("single", "good")]).await;
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind, SinkErrorKind::Unreachable, "{outcomes:?}");
    assert!(outcomes[1].is_ok(), "{outcomes:?}");

    let duly = duly_to(&cluster, 1).await;
    for n in 0..50 {
        duly.send(Draft::to_sink("events", "orders").id(format!("m{n}")).text("body")).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("some were tried", PATIENCE, || duly.stats().failed > 0);
        cluster.start(2);
    });
    wait_for_end(&duly, 50);
    duly.shutdown().await.unwrap();
    tokio::task::block_in_place(|| cluster.start(3));
    let there = tokio::task::block_in_place(|| sorted_ids(&brokers, "orders"));
    let missing = (0..50).map(|n| format!("m{n}")).filter(|id| !there.contains(id)).count();
    assert_eq!(missing, 0, "of {there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_under_load_loses_and_dead_letters_nothing() {
    const MESSAGES: u64 = 3_000;
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let brokers = cluster.addresses();
    let replicas: [&[i32]; 3] = [&[2, 3, 1], &[3, 1, 2], &[1, 2, 3]];
    make_topic(&cluster, "loaded", &replicas).await;
    until_taken(&sink_with(&brokers, ""), "loaded", "first").await;
    // In the worst case a message is sent to the dead leader twice before another is elected.
    let duly = duly_to(&cluster, 5).await;
    for n in 0..MESSAGES {
        let message = Draft::to_sink("events", "loaded").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("it is under load", PATIENCE, || duly.stats().delivered >= MESSAGES / 10);
        cluster.kill(2);
    });
    wait_for_end(&duly, MESSAGES);
    duly.shutdown().await.unwrap();
    tokio::task::block_in_place(|| cluster.start(2));
    let mut there = tokio::task::block_in_place(|| sorted_ids(&brokers, "loaded"));
    there.dedup();
    assert_eq!(there.len() as u64, MESSAGES + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_a_leader_holds_up_only_the_keys_that_go_there() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    make_topic(&cluster, "half", &[&[1], &[2]]).await;
    let sink = sink_with(&cluster.addresses(), "");
    let keyed =
        |id: &str| Delivery::new(StoredMessage { key: Some(id.parse().unwrap()), ..message("half", id) }, 1);
    // Which key goes where, from the receipts.
    until_taken(&sink, "half", "first").await;
    let batch: Vec<_> = (0..20).map(|n| keyed(&format!("k{n}"))).collect();
    let receipts: Vec<_> = sink.deliver(&batch).await.into_iter().map(Result::unwrap).collect();
    let of = |partition: &str| receipts.iter().position(|receipt| receipt.starts_with(partition)).unwrap();
    let (led, leaderless) = (&batch[of("0:")], &batch[of("1:")]);
    assert_eq!(sink.destination(&led.message), sink.destination(&leaderless.message));

    tokio::task::block_in_place(|| cluster.kill(2));
    let both = [leaderless.clone(), led.clone()];
    let mut unknown = 0;
    for round in 0.. {
        assert!(round < 20, "a partition without a leader is never known as such");
        let outcomes = sink.deliver(&both).await;
        assert!(outcomes[1].is_ok(), "{outcomes:?}");
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.scope, ErrorScope::Destination, "{error}");
        // What went into the connection before its end was noticed is unknown.
        let is_known = error.kind == SinkErrorKind::Unreachable;
        assert!(is_known || error.kind == SinkErrorKind::Unknown, "{error}");
        unknown += u32::from(!is_known);
        assert!(unknown <= 2, "the connection ends once: {error}");
        let is_apart = sink.destination(&led.message) != sink.destination(&leaderless.message);
        if is_known && is_apart {
            break;
        }
    }
    tokio::task::block_in_place(|| cluster.start(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_names_topics_that_one_broker_can_stop() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    let brokers = cluster.addresses();
    make_topic(&cluster, "a-lonely", &[&[1]]).await;
    reader::make_topic(&brokers, "a-strict", 1, &[("min.insync.replicas", "3")]).await;
    reader::make_topic(&brokers, "a-sound", 1, &[("min.insync.replicas", "2")]).await;
    let text = format!("kind = 'kafka'\nbrokers = '{brokers}'");
    let config: SinkConfig = toml::from_str(&text).unwrap();
    let clock = Arc::new(SystemClock::new().unwrap());
    let remarks = config.inspect(clock, PATIENCE, &["a-sound", "a-missing"]).await;
    let remark = |what: &str| {
        let found = remarks.iter().find(|remark| remark.detail.contains(what));
        &found.unwrap_or_else(|| panic!("{what} is not among {remarks:?}")).detail
    };
    assert!(remark("one replica").contains("a-lonely"), "{remarks:?}");
    assert!(remark("is not below").contains("a-strict"), "{remarks:?}");
    assert!(remark("do not show this user").contains("a-missing"), "{remarks:?}");
    assert!(remarks.iter().all(|remark| !remark.detail.contains("a-sound")), "{remarks:?}");
}

/// The cluster with the topic `lossless`, of which the second broker leads one partition.
struct Killed<'a>(&'a Cluster);

#[async_trait]
impl sink::Cluster for Killed<'_> {
    fn sink(&self) -> Arc<dyn Sink> {
        sink_with(&self.0.addresses(), "")
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        message("lossless", id.as_str())
    }

    async fn kill_one(&self) {
        self.0.kill(2);
    }

    async fn restore(&self) {
        tokio::task::block_in_place(|| self.0.start(2));
    }

    async fn ids(&self) -> BTreeSet<MessageId> {
        let there = tokio::task::block_in_place(|| sorted_ids(&self.0.addresses(), "lossless"));
        there.into_iter().map(|id| id.parse().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing() {
    if !installed() {
        return;
    }
    let cluster = cluster().await;
    make_topic(&cluster, "lossless", &[&[2, 3, 1], &[3, 1, 2]]).await;
    until_taken(&sink_with(&cluster.addresses(), ""), "lossless", "first").await;
    sink::a_server_killed_under_load_loses_nothing(&Killed(&cluster)).await;
}
