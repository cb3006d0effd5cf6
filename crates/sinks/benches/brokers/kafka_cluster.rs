//! Kafka: three brokers, a topic of three partitions with three replicas each, of which two must be in sync.
//!
//! What is killed is the leader of one partition, and a follower in the others.

use async_trait::async_trait;
use testkit::servers::kafka::Cluster;

use crate::{
    broker::{Bare, Broker, Keep},
    kafka::{Producer, TOPIC, reader},
};

/// The broker that is killed. Each leads one of three partitions; the first is the controller.
const KILLED: u16 = 2;

pub(crate) struct KafkaCluster(Cluster);

impl KafkaCluster {
    pub(crate) fn new(keep: Keep) -> Self {
        let cluster = Cluster::start_new();
        let mut settings = vec![("min.insync.replicas", "2")];
        if keep == Keep::Safely {
            settings.push(("flush.messages", "1"));
        }
        testkit::block_on(reader::make_topic(&cluster.addresses(), TOPIC, 3, &settings));
        Self(cluster)
    }
}

#[async_trait]
impl Broker for KafkaCluster {
    fn name(&self) -> &'static str {
        "kafka_cluster"
    }

    fn config(&self) -> String {
        format!("kind = 'kafka'\nbrokers = '{}'", self.0.addresses())
    }

    fn safety(&self) -> &'static str {
        "two of three replicas, flush.messages=1"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Producer::to(&self.0.addresses()))
    }

    async fn ids(&self) -> Vec<String> {
        let brokers = self.0.addresses();
        let read = tokio::task::spawn_blocking(move || reader::read(&brokers, TOPIC)).await.unwrap();
        read.into_iter().map(|arrival| arrival.id.to_string()).collect()
    }

    fn kill(&self) {
        self.0.kill(KILLED);
    }

    fn start(&self) {
        self.0.start(KILLED);
    }

    fn pause(&self) {
        self.0.pause(KILLED);
    }

    fn cont(&self) {
        self.0.cont(KILLED);
    }
}
