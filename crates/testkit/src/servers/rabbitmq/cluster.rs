//! Three RabbitMQ nodes as one broker. They take half a minute to start: keep one for all that needs it.

use std::{fs, os::unix::fs::PermissionsExt};

use super::{Rabbitmq, names};

/// What nodes of one cluster know and nobody else does.
const COOKIE: &str = "DULYTESTS";
const NODES: usize = 3;

/// Three nodes. A queue that is declared at one of them has its leader there.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Rabbitmq>,
}

impl Cluster {
    /// A cluster that is complete.
    ///
    /// # Panics
    /// If RabbitMQ is not installed or does not start.
    pub fn start() -> Self {
        let names = names();
        let nodes: Vec<Rabbitmq> = (0..NODES).map(|_| Rabbitmq::prepared(names.clone())).collect();
        let peers: Vec<String> = (1..)
            .zip(&nodes)
            .map(|(n, node)| format!("cluster_formation.classic_config.nodes.{n} = {}", node.node_name()))
            .collect();
        // The first of the list need not wait for anybody: it begins, and the others join it.
        let config = format!(
            "cluster_formation.peer_discovery_backend = classic_config\n\
             cluster_partition_handling = pause_minority\n{}",
            peers.join("\n")
        );
        for node in &nodes {
            node.configure(&config);
            let cookie = node.folder().join(".erlang.cookie");
            fs::write(&cookie, COOKIE).unwrap();
            fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400)).unwrap();
        }
        nodes[0].start();
        nodes[1..].iter().for_each(Rabbitmq::launch);
        nodes[1..].iter().for_each(Rabbitmq::wait);
        Self { nodes }
    }

    /// One of the nodes.
    pub fn node(&self, index: usize) -> &Rabbitmq {
        &self.nodes[index]
    }

    /// Where clients go, beginning with this node, as a list in TOML.
    pub fn urls_from(&self, first: usize) -> String {
        let urls = (0..NODES).map(|n| format!("'{}'", self.nodes[(first + n) % NODES].url()));
        format!("[{}]", urls.collect::<Vec<_>>().join(", "))
    }

    /// Starts those that do not run, and returns when all are there.
    pub fn start_missing(&self) {
        let missing: Vec<_> = self.nodes.iter().filter(|node| !node.program.is_alive()).collect();
        missing.iter().for_each(|node| node.launch());
        missing.iter().for_each(|node| node.wait());
    }
}
