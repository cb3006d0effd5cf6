//! RocketMQ as it is run: two masters, one with a slave, two name servers. The master without a slave is killed.

use async_trait::async_trait;
use testkit::servers::rocketmq::{Cluster, Node};

use crate::{
    broker::{Bare, Broker, Bystander, Keep},
    rocketmq::{Remoting, TOPIC, reader},
    socket::Socket,
};

/// A topic of the master that is not killed.
const BYSTANDER: &str = "bystander";

pub(crate) struct RocketmqCluster {
    cluster: Cluster,
}

impl RocketmqCluster {
    pub(crate) fn new(keep: Keep) -> Self {
        let more: &[&str] = if keep == Keep::Safely { &["flushDiskType=SYNC_FLUSH"] } else { &[] };
        let cluster = Cluster::with(more);
        let [a, b] = cluster.masters();
        cluster.make_topic(TOPIC, &[a, b]);
        cluster.make_topic(BYSTANDER, &[a]);
        Self { cluster }
    }

    fn victim(&self) -> &Node {
        &self.cluster.masters()[1]
    }
}

#[async_trait]
impl Broker for RocketmqCluster {
    fn name(&self) -> &'static str {
        "rocketmq_cluster"
    }

    fn config(&self) -> String {
        format!("kind = 'rocketmq'\nnamesrv = '{}'", self.cluster.namesrv())
    }

    fn topic(&self) -> &'static str {
        TOPIC
    }

    fn bystander(&self) -> Option<Bystander> {
        Some(Bystander { topic: BYSTANDER, unaffected_kills: 2 })
    }

    fn safety(&self) -> &'static str {
        "SYNC_FLUSH, one master of two"
    }

    /// To one of the masters.
    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Remoting(Socket::to(&self.cluster.masters()[0].address()).await))
    }

    async fn ids(&self) -> Vec<String> {
        let addresses: Vec<_> = self.cluster.masters().iter().map(Node::address).collect();
        let read = tokio::task::spawn_blocking(move || {
            addresses.iter().flat_map(|address| reader::read(address, TOPIC)).collect::<Vec<_>>()
        });
        read.await.unwrap().into_iter().map(|arrival| arrival.id.to_string()).collect()
    }

    fn kill(&self) {
        self.victim().kill();
    }

    fn start(&self) {
        self.victim().start();
    }

    fn pause(&self) {
        self.victim().pause();
    }

    fn cont(&self) {
        self.victim().cont();
    }
}
