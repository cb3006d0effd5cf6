//! A cluster of three NATS servers with JetStream.

use std::time::Duration;

use super::Nats;
use crate::servers::{port_lease::SECOND, wait_until};

/// Servers of a cluster: one may be away, and the others still agree.
const SERVERS: usize = 3;
/// The servers agree on a leader within this.
const LEADER_WITHIN: Duration = Duration::from_secs(60);

/// Three servers that keep streams together. Their names are `n0`, `n1` and `n2`.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Nats>,
}

impl Cluster {
    /// Three servers that know of each other and have agreed on a leader.
    ///
    /// # Panics
    /// If NATS is not installed or the three do not find each other.
    pub fn of_three() -> Self {
        let nodes: Vec<Nats> = (0..SERVERS).map(|_| Nats::placed()).collect();
        let route = |node: &Nats| format!("\"nats://127.0.0.1:{}\"", node.port() + SECOND);
        let routes = nodes.iter().map(route).collect::<Vec<_>>().join(", ");
        for (place, node) in nodes.iter().enumerate() {
            node.configure(&format!(
                "server_name: n{place}\n\
                 cluster {{ name: duly, listen: \"127.0.0.1:{}\", routes: [{routes}] }}",
                node.port() + SECOND,
            ));
            node.launch();
        }
        let cluster = Self { nodes };
        cluster.nodes.iter().for_each(Nats::wait_until_ready);
        cluster.wait_until_led();
        cluster
    }

    /// Where clients go: all three.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("nats://{}", hosts.join(","))
    }

    /// The servers.
    pub fn nodes(&self) -> &[Nats] {
        &self.nodes
    }

    /// The place among [`nodes`](Self::nodes) of the server of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn place(&self, name: &str) -> usize {
        name.strip_prefix('n').and_then(|place| place.parse().ok()).filter(|place| *place < SERVERS).unwrap()
    }

    /// kill -9 of all.
    pub fn kill(&self) {
        self.nodes.iter().for_each(|node| node.kill());
    }

    /// Starts those that do not run, and returns when all are there and have a leader.
    pub fn start(&self) {
        self.nodes.iter().filter(|node| !node.is_alive()).for_each(Nats::launch);
        self.nodes.iter().for_each(Nats::wait_until_ready);
        self.wait_until_led();
    }

    /// Returns when the running servers have agreed on who leads them, and all that run follow it.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_led(&self) {
        wait_until("the cluster has a leader", LEADER_WITHIN, || {
            self.nodes.iter().filter(|node| node.is_alive()).all(Nats::has_leader)
        });
    }
}
