//! NATS: a stream that three servers keep, of which the leader is killed.

use async_nats::jetstream::{self, Context, stream::Config};
use async_trait::async_trait;
use testkit::{bench::process, servers::nats};

use crate::{
    broker::{Bare, Broker, Bystander},
    nats::{Client, STREAM, SUBJECT, ids},
    whole::pause,
};

/// Servers that keep the stream.
const REPLICAS: usize = 3;
/// The cluster agrees on a new stream, and on a new leader, within this.
const AGREED_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(100);

/// A stream of one server, which is not killed and which the sink is connected to.
const BYSTANDER_STREAM: &str = "BYSTANDER";
const BYSTANDER: &str = "bystander";

pub(crate) struct NatsCluster {
    cluster: nats::Cluster,
    /// The place of the server that has the bystander's stream.
    bystander: usize,
}

impl NatsCluster {
    pub(crate) fn new() -> Self {
        let mut broker = Self { cluster: nats::Cluster::of_three(), bystander: 0 };
        broker.bystander = testkit::block_on(async {
            broker.create(STREAM, SUBJECT, REPLICAS).await;
            broker.create(BYSTANDER_STREAM, BYSTANDER, 1).await;
            broker.leader(BYSTANDER_STREAM).await
        });
        broker
    }

    async fn create(&self, stream: &str, subject: &str, replicas: usize) {
        let config = Config {
            name: stream.into(),
            subjects: vec![subject.into()],
            num_replicas: replicas,
            ..Config::default()
        };
        let context = self.context().await;
        let began = process::now();
        // Servers of a young cluster may not know each other yet.
        while let Err(error) = context.create_stream(config.clone()).await {
            assert!(began.elapsed() < AGREED_WITHIN, "{error}");
            pause(AGAIN_AFTER).await;
        }
    }

    async fn context(&self) -> Context {
        let servers: Vec<String> =
            self.cluster.nodes().iter().map(|node| format!("nats://127.0.0.1:{}", node.port())).collect();
        jetstream::new(async_nats::connect(servers).await.unwrap())
    }

    /// The place of the server that leads a stream.
    async fn leader(&self, stream: &str) -> usize {
        let context = self.context().await;
        let began = process::now();
        loop {
            if let Ok(stream) = context.get_stream(stream).await
                && let Some(name) = stream.cached_info().cluster.as_ref().and_then(|all| all.leader.as_ref())
            {
                return self.cluster.place(name);
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
        let bystander = &self.cluster.nodes()[self.bystander];
        format!("kind = 'nats'\nurl = 'nats://127.0.0.1:{}'", bystander.port())
    }

    fn bystander(&self) -> Option<Bystander> {
        Some(Bystander { topic: BYSTANDER, unaffected_kills: 2 })
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

    async fn bare_bystander(&self) -> Option<Box<dyn Bare>> {
        let bystander = &self.cluster.nodes()[self.bystander];
        let client = async_nats::connect(format!("nats://127.0.0.1:{}", bystander.port())).await.unwrap();
        Some(Box::new(Client(jetstream::new(client))))
    }

    async fn ids(&self) -> Vec<String> {
        self.leader(STREAM).await;
        ids(&self.context().await).await
    }

    /// kill -9 of the stream's leader, which first moves off the bystander's server.
    fn kill(&self) {
        let leader = testkit::block_on(async {
            let began = process::now();
            loop {
                let leader = self.leader(STREAM).await;
                if leader != self.bystander {
                    return leader;
                }
                assert!(began.elapsed() < AGREED_WITHIN, "the leader does not move");
                let step_down = format!("STREAM.LEADER.STEPDOWN.{STREAM}");
                let _: Result<serde_json::Value, _> = self.context().await.request(step_down, &()).await;
                pause(AGAIN_AFTER).await;
            }
        });
        self.cluster.nodes()[leader].kill();
    }

    fn start(&self) {
        self.cluster.start();
    }

    fn pause(&self) {
        self.cluster.nodes().iter().for_each(|node| node.pause());
    }

    fn cont(&self) {
        self.cluster.nodes().iter().for_each(|node| node.cont());
    }
}
