//! Kafka: three brokers, a topic of three partitions with three replicas each, of which two must be in sync.
//!
//! What is killed is the leader of two partitions, and a follower in the third. The topic that is not affected has its leader where
//! no partition of the other one has or gets one: a broker answers the requests of a connection in order, and one that waits for a
//! follower that is gone keeps all behind it waiting until the cluster has noticed.

use async_trait::async_trait;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
};
use testkit::servers::kafka::Cluster;

use crate::{
    broker::{Bare, Broker, Bystander, Keep},
    kafka::{Producer, TOPIC, reader},
};

/// The broker that is killed. The first is the controller.
const KILLED: u16 = 2;
/// Where the partitions are, the leader first, then who takes its place.
const PARTITIONS: [&[i32]; 3] = [&[2, 1, 3], &[1, 2, 3], &[2, 1, 3]];
/// A topic that the other two keep.
const BYSTANDER: &str = "bystander";
const SURVIVORS: [i32; 2] = [3, 1];

pub(crate) struct KafkaCluster(Cluster);

impl KafkaCluster {
    pub(crate) fn new(keep: Keep) -> Self {
        let cluster = Cluster::start_new();
        let mut settings = vec![("min.insync.replicas", "2")];
        if keep == Keep::Safely {
            settings.push(("flush.messages", "1"));
        }
        testkit::block_on(async {
            make_topic(&cluster.addresses(), TOPIC, &PARTITIONS, &settings).await;
            make_topic(&cluster.addresses(), BYSTANDER, &[&SURVIVORS], &[]).await;
        });
        Self(cluster)
    }
}

async fn make_topic(brokers: &str, name: &str, partitions: &[&[i32]], settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let count = i32::try_from(partitions.len()).unwrap();
    let mut topic = NewTopic::new(name, count, TopicReplication::Variable(partitions));
    topic.config = settings.to_vec();
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    made.into_iter().for_each(|one| drop(one.unwrap()));
}

#[async_trait]
impl Broker for KafkaCluster {
    fn name(&self) -> &'static str {
        "kafka_cluster"
    }

    fn config(&self) -> String {
        format!("kind = 'kafka'\nbrokers = '{}'", self.0.addresses())
    }

    fn bystander(&self) -> Option<Bystander> {
        Some(Bystander { topic: BYSTANDER, unaffected_kills: 2 })
    }

    fn safety(&self) -> &'static str {
        "two of three replicas, flush.messages=1"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Producer::to(&self.0.addresses()))
    }

    async fn bare_bystander(&self) -> Option<Box<dyn Bare>> {
        Some(self.bare().await)
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
