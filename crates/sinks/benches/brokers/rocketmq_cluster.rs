//! RocketMQ as it is run: two masters, one with a slave, two name servers. One master at a time is killed, by turns.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use testkit::servers::rocketmq::{Cluster, Node};

use crate::{
    broker::{Bare, Broker, Keep},
    rocketmq::{Remoting, TOPIC, reader},
    socket::Socket,
};

pub(crate) struct RocketmqCluster {
    cluster: Cluster,
    /// Masters killed so far.
    killed: AtomicUsize,
}

impl RocketmqCluster {
    pub(crate) fn new(keep: Keep) -> Self {
        let more: &[&str] = if keep == Keep::Safely { &["flushDiskType=SYNC_FLUSH"] } else { &[] };
        let cluster = Cluster::with(more);
        let [a, b] = cluster.masters();
        cluster.make_topic(TOPIC, &[a, b]);
        Self { cluster, killed: AtomicUsize::new(0) }
    }

    /// The master that was killed last, or is next.
    fn master(&self, killed: usize) -> &Node {
        let [a, b] = self.cluster.masters();
        if killed.is_multiple_of(2) { b } else { a }
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

    fn safety(&self) -> &'static str {
        "SYNC_FLUSH, one master of two at a time"
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
        self.master(self.killed.fetch_add(1, Ordering::SeqCst)).kill();
    }

    fn start(&self) {
        self.master(self.killed.load(Ordering::SeqCst).saturating_sub(1)).start();
    }

    fn pause(&self) {
        self.master(0).pause();
    }

    fn cont(&self) {
        self.master(0).cont();
    }
}
