//! NATS: a stream that three servers keep, of which the leader is killed.

use async_nats::jetstream::{self, Context, stream::Config};
use async_trait::async_trait;
use testkit::{bench::process, servers::nats};

use crate::{
    broker::{Bare, Broker},
    nats::{Client, STREAM, SUBJECT, ids},
    whole::pause,
};

/// Servers that keep the stream.
const REPLICAS: usize = 3;
/// The cluster agrees on a new stream, and on a new leader, within this.
const AGREED_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct NatsCluster(nats::Cluster);

impl NatsCluster {
    pub(crate) fn new() -> Self {
        let broker = Self(nats::Cluster::of_three());
        testkit::block_on(async {
            let config = Config {
                name: STREAM.into(),
                subjects: vec![SUBJECT.into()],
                num_replicas: REPLICAS,
                ..Config::default()
            };
            let context = broker.context().await;
            let began = process::now();
            // Servers of a young cluster may not know each other yet.
            while let Err(error) = context.create_stream(config.clone()).await {
                assert!(began.elapsed() < AGREED_WITHIN, "{error}");
                pause(AGAIN_AFTER).await;
            }
        });
        broker
    }

    async fn context(&self) -> Context {
        let servers: Vec<String> =
            self.0.nodes().iter().map(|node| format!("nats://127.0.0.1:{}", node.port())).collect();
        jetstream::new(async_nats::connect(servers).await.unwrap())
    }

    /// The place of the server that leads the stream.
    async fn leader(&self) -> usize {
        let context = self.context().await;
        let began = process::now();
        loop {
            if let Ok(stream) = context.get_stream(STREAM).await
                && let Some(name) = stream.cached_info().cluster.as_ref().and_then(|all| all.leader.as_ref())
            {
                return self.0.place(name);
            }
            assert!(began.elapsed() < AGREED_WITHIN, "no leader");
            pause(AGAIN_AFTER).await;
        }
    }
}

#[async_trait]
impl Broker for NatsCluster {
    fn name(&self) -> &'static str {
        "nats_cluster"
    }

    fn config(&self) -> String {
        format!("kind = 'nats'\nurl = '{}'", self.0.url())
    }

    fn safety(&self) -> &'static str {
        "stream of three servers, its leader killed, duplicate window 2 min"
    }

    fn knows_copies(&self) -> bool {
        true
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Client(self.context().await))
    }

    async fn ids(&self) -> Vec<String> {
        self.leader().await;
        ids(&self.context().await).await
    }

    /// kill -9 of the stream's leader.
    fn kill(&self) {
        let leader = testkit::block_on(self.leader());
        self.0.nodes()[leader].kill();
    }

    fn start(&self) {
        self.0.start();
    }

    fn pause(&self) {
        self.0.nodes().iter().for_each(nats::Nats::pause);
    }

    fn cont(&self) {
        self.0.nodes().iter().for_each(nats::Nats::cont);
    }
}
