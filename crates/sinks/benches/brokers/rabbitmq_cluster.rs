//! RabbitMQ: three nodes with a quorum queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lapin::options::ConfirmSelectOptions;
use testkit::servers::rabbitmq::Cluster;

use crate::{
    broker::{Bare, Broker, Bystander, Keep},
    rabbitmq::{Lapin, channel, declare, declare_named, ids},
};

/// The node that the sink connects to first, and that a reader asks in the end, unless it was killed.
const FIRST: usize = 1;
/// A node that is never killed.
const SAFE: usize = 2;
/// A queue whose leader is at that node.
const BYSTANDER: &str = "bystander";

pub(crate) struct RabbitmqCluster {
    cluster: Cluster,
    kills: AtomicUsize,
}

impl RabbitmqCluster {
    /// The leader of the queue is at the first node.
    pub(crate) fn new(_: Keep) -> Self {
        let cluster = Cluster::start();
        testkit::block_on(async {
            declare(&channel(&cluster.node(0).url()).await).await;
            declare_named(&channel(&cluster.node(SAFE).url()).await, BYSTANDER).await;
        });
        Self { cluster, kills: AtomicUsize::new(0) }
    }

    async fn bare_to(&self, node: usize) -> Box<dyn Bare> {
        let channel = channel(&self.cluster.node(node).url()).await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Box::new(Lapin(channel))
    }

    /// First the leader, then the node that the sink is connected to.
    fn victim(&self) -> usize {
        self.kills.load(Ordering::Relaxed).saturating_sub(1) % 2
    }
}

#[async_trait]
impl Broker for RabbitmqCluster {
    fn name(&self) -> &'static str {
        "rabbitmq_cluster"
    }

    fn config(&self) -> String {
        format!("kind = 'rabbitmq'\nurl = {}", self.cluster.urls_from(FIRST))
    }

    /// The second kill takes the connection of all queues.
    fn bystander(&self) -> Option<Bystander> {
        Some(Bystander { topic: BYSTANDER, unaffected_kills: 1 })
    }

    fn safety(&self) -> &'static str {
        "quorum queue on three nodes, the leader killed, then the node of the connection"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        self.bare_to(FIRST).await
    }

    /// Not to the node that is killed with the connection: the bare client makes no second one.
    async fn bare_bystander(&self) -> Option<Box<dyn Bare>> {
        Some(self.bare_to(SAFE).await)
    }

    async fn ids(&self) -> Vec<String> {
        ids(&self.cluster.node(SAFE).url()).await
    }

    fn kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
        self.cluster.node(self.victim()).kill();
    }

    fn start(&self) {
        self.cluster.node(self.victim()).start();
    }

    fn pause(&self) {
        self.cluster.node(0).pause();
    }

    fn cont(&self) {
        self.cluster.node(0).cont();
    }
}
