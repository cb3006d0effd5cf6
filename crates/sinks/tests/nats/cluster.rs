//! Three servers: a leader that is killed, and a stream without a majority beside one that needs none.
//!
//! Each test has a cluster of its own: it starts in a second.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_nats::jetstream::{
    self, Context,
    stream::{Config, Stream},
};
use async_trait::async_trait;
use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::{ErrorScope, MessageId, Sink, SinkErrorKind, StoredMessage};
use duly_stores::MemoryStore;
use testkit::{
    servers::{
        nats::{Cluster, installed},
        wait_until,
    },
    sink,
};

use crate::{configured, ids, one, sink_with, to};

const LIMIT: Duration = Duration::from_secs(120);

async fn context(cluster: &Cluster) -> Context {
    let servers: Vec<String> =
        cluster.nodes().iter().map(|node| format!("nats://127.0.0.1:{}", node.port())).collect();
    jetstream::new(async_nats::connect(servers).await.unwrap())
}

/// Asks again and again, until there is an answer or the test fails.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// A stream with the subject of its name, kept by so many servers. Those of a young cluster may not know each other yet.
async fn stream(context: &Context, name: &str, servers: usize) -> Stream {
    let config = Config {
        name: name.to_uppercase(),
        subjects: vec![name.into()],
        num_replicas: servers,
        ..Config::default()
    };
    until("a new stream", async || context.create_stream(config.clone()).await.ok()).await
}

/// The place of the server that leads the stream.
async fn leader(cluster: &Cluster, stream: &mut Stream) -> usize {
    let name = until("a leader", async || stream.info().await.ok()?.cluster.clone()?.leader).await;
    cluster.place(&name)
}

/// Delivers until it is taken. What it hears until then is about the destination or the connection, and refuses nothing.
async fn taken(sink: &Arc<dyn Sink>, topic: &str, id: &str) {
    let once = async || match one(sink, topic, id).await {
        Ok(_) => Some(()),
        Err(error) => {
            let is_patient = matches!(error.kind, SinkErrorKind::Unreachable | SinkErrorKind::Unknown);
            assert!(is_patient, "{error}");
            None
        }
    };
    until("a delivery", once).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_under_load_loses_nothing_repeats_nothing_and_kills_no_message() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let context = context(&cluster).await;
    let mut orders = stream(&context, "orders", 3).await;
    let leader = leader(&cluster, &mut orders).await;
    let duly = Duly::builder()
        .store(Arc::new(MemoryStore::new()))
        .clock(Arc::new(SystemClock::new().unwrap()))
        .sink("events", sink_with(&cluster.url(), "request_timeout = '3s'"), SinkOptions::default())
        .start()
        .await
        .unwrap();
    let count = 2_000;
    for n in 0..count {
        let message = Message::to("events/orders").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n))).await.unwrap();
    }
    let wait = |what: &str, least: u64| {
        tokio::task::block_in_place(|| wait_until(what, LIMIT, || duly.stats().delivered >= least));
    };
    wait("some are delivered", 200);
    cluster.nodes()[leader].kill();
    wait("all are delivered", count);
    assert_eq!((duly.stats().delivered, duly.stats().dead), (count, 0));
    duly.shutdown().await.unwrap();
    let mut orders = context.get_stream("ORDERS").await.unwrap();
    let there = ids(&mut orders).await;
    let distinct: BTreeSet<&String> = there.iter().collect();
    assert_eq!((there.len() as u64, distinct.len() as u64), (count, count));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_majority_holds_up_no_other_and_goes_on_when_it_has_one() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let context = context(&cluster).await;
    let (mut far, mut near) = (stream(&context, "far", 3).await, stream(&context, "near", 1).await);
    let home = leader(&cluster, &mut near).await;
    leader(&cluster, &mut far).await;
    let clock = Arc::new(SystemClock::new().unwrap());
    let remarks = configured(&cluster.url(), "").inspect(clock, Duration::ZERO, &[]).await;
    assert!(remarks.len() == 1 && remarks[0].detail.contains("the stream NEAR"), "{remarks:?}");
    let sink = sink_with(&cluster.url(), "request_timeout = '3s'");
    for topic in ["far", "near"] {
        taken(&sink, topic, "first").await;
    }
    for place in (0..3).filter(|place| *place != home) {
        cluster.nodes()[place].kill();
    }
    taken(&sink, "near", "second").await;
    for round in 0..2 {
        let batch = [to("far", "third"), to("near", &format!("third{round}"))];
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[1].is_ok(), "{outcomes:?}");
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.scope, ErrorScope::Destination, "{error}");
        assert!(matches!(error.kind, SinkErrorKind::Unreachable | SinkErrorKind::Unknown), "{error}");
    }
    tokio::task::block_in_place(|| cluster.start());
    taken(&sink, "far", "third").await;
    leader(&cluster, &mut far).await;
    assert_eq!(ids(&mut far).await, ["first", "third"]);
}

#[tokio::test]
async fn a_silent_server_among_several_leaves_time_for_the_others() {
    if !installed() {
        return;
    }
    let nats = testkit::servers::nats::Nats::single();
    crate::orders(&nats).await;
    // Takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap().port(), silent);
    let url = format!("nats://127.0.0.1:{},127.0.0.1:{}", silent.0, nats.port());
    for mode in ["jetstream", "core"] {
        // Which of the two comes first is drawn by lot.
        for n in 0..4 {
            let sink = sink_with(&url, &format!("mode = '{mode}'\nrequest_timeout = '4s'"));
            one(&sink, "orders", &format!("{mode}{n}")).await.unwrap();
        }
    }
}

/// A cluster with the stream of `orders`, whose leader is known.
struct Killed {
    cluster: Cluster,
    leader: usize,
}

#[async_trait]
impl sink::Cluster for Killed {
    fn sink(&self) -> Arc<dyn Sink> {
        sink_with(&self.cluster.url(), "request_timeout = '3s'")
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        to("orders", id.as_str()).message
    }

    async fn kill_one(&self) {
        self.cluster.nodes()[self.leader].kill();
    }

    async fn restore(&self) {
        tokio::task::block_in_place(|| self.cluster.start());
    }

    async fn ids(&self) -> BTreeSet<MessageId> {
        let context = context(&self.cluster).await;
        let led = async {
            loop {
                let Ok(mut orders) = context.get_stream("ORDERS").await else { continue };
                let state = orders.info().await.ok().and_then(|info| info.cluster.as_ref()?.leader.clone());
                if state.is_some() {
                    return orders;
                }
            }
        };
        let mut orders = tokio::time::timeout(LIMIT, led).await.expect("the stream has a leader again");
        ids(&mut orders).await.into_iter().map(|id| id.parse().unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_nothing() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let context = context(&cluster).await;
    let mut orders = stream(&context, "orders", 3).await;
    let leader = leader(&cluster, &mut orders).await;
    sink::a_server_killed_under_load_loses_nothing(&Killed { cluster, leader }).await;
}
