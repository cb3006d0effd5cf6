//! Three brokers. The first is also the only controller, so that the other two may be stopped together: with three voters
//! the cluster would decide nothing while two are away, also not that they are.

use std::fs;

use super::{CLUSTER_ID, FORMAT, Program, READY, SECOND, copy_empty, run};

/// The clusters' brokers, by number.
pub const NODES: [u16; 3] = [1, 2, 3];

/// Three brokers. Their ports and data stay over restarts.
#[derive(Debug)]
pub struct Cluster {
    nodes: [Program; 3],
}

impl Cluster {
    /// A cluster of one's own, running.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_new() -> Self {
        let cluster = Self { nodes: [(); 3].map(|()| Program::new("java")) };
        for node in NODES {
            let folder = cluster.node(node).folder();
            let settings = cluster.settings(node);
            fs::write(folder.join("settings"), &settings).unwrap();
            copy_empty(&folder.join("data"), &settings);
            // The copied folder is that of node 1. No two may have the same id, and no folder's id is that of another.
            let id = format!("dulyNode{node}AAAAAAAAAAAAA");
            let properties =
                format!("version={FORMAT}\ncluster.id={CLUSTER_ID}\nnode.id={node}\ndirectory.id={id}\n");
            fs::write(folder.join("data/meta.properties"), properties).unwrap();
        }
        cluster.start_all(&NODES);
        cluster
    }

    /// Where clients go who need no password: all three.
    pub fn addresses(&self) -> String {
        NODES.map(|node| format!("127.0.0.1:{}", self.node(node).port())).join(",")
    }

    /// kill -9. The first must not be killed: without a controller nobody elects a leader.
    ///
    /// # Panics
    /// If it is.
    pub fn kill(&self, node: u16) {
        assert_ne!(node, NODES[0], "the controller stays");
        self.node(node).kill();
    }

    /// Starts it again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self, node: u16) {
        self.start_all(&[node]);
    }

    /// SIGSTOP: the broker does nothing, and its connections stay.
    pub fn pause(&self, node: u16) {
        self.node(node).pause();
    }

    /// SIGCONT: the broker goes on.
    pub fn cont(&self, node: u16) {
        self.node(node).cont();
    }

    /// What it wrote to its standard error, over all restarts.
    pub fn log(&self, node: u16) -> String {
        self.node(node).log()
    }

    /// At once: a broker waits for the controller.
    fn start_all(&self, nodes: &[u16]) {
        std::thread::scope(|threads| {
            for node in nodes {
                threads.spawn(|| run(self.node(*node)));
            }
        });
        assert!(nodes.iter().all(|node| self.log(*node).contains(READY)));
    }

    fn node(&self, node: u16) -> &Program {
        &self.nodes[usize::from(node - 1)]
    }

    /// `server.properties`: a broker that is missed after three seconds.
    fn settings(&self, node: u16) -> String {
        let (program, first) = (self.node(node), self.node(NODES[0]));
        let (plain, controller) = (program.port(), first.port() + SECOND);
        let data = program.folder().join("data").display().to_string();
        let (roles, bound) = match node {
            1 => ("broker,controller", format!(",CONTROLLER://127.0.0.1:{controller}")),
            _ => ("broker", String::new()),
        };
        format!(
            "process.roles={roles}\n\
             node.id={node}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAIN\n\
             listeners=PLAIN://127.0.0.1:{plain}{bound}\n\
             advertised.listeners=PLAIN://127.0.0.1:{plain}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={data}\n\
             broker.session.timeout.ms=3000\n\
             broker.heartbeat.interval.ms=500\n\
             auto.leader.rebalance.enable=false\n\
             auto.create.topics.enable=false\n\
             default.replication.factor=3\n\
             offsets.topic.replication.factor=3\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=3\n\
             transaction.state.log.num.partitions=1\n\
             group.initial.rebalance.delay.ms=0\n\
             num.network.threads=1\n\
             num.io.threads=2\n\
             background.threads=2\n\
             log.cleaner.enable=false\n"
        )
    }
}
