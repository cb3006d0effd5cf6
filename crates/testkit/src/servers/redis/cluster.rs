//! A Redis Cluster of three.

use super::{Options, READY_WITHIN, Redis};
use crate::servers::{port_lease::SECOND, wait_until};

/// The slots of every Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// A server that was silent for this long counts as gone, in ms. Longer than a busy machine keeps one waiting.
const NODE_TIMEOUT_MS: &str = "6000";

/// Three Redis servers that share the slots between them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Three servers with a third of the slots each, all of which know of all.
    ///
    /// # Panics
    /// If Redis is not installed or the three do not find each other.
    pub fn of_three() -> Self {
        let words = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        let words = words.into_iter().chain(["--cluster-node-timeout", NODE_TIMEOUT_MS]).map(str::to_owned);
        let options = Options { more: words.collect(), ..Options::default() };
        let nodes: Vec<Redis> = (0..3).map(|_| Redis::with(options.clone())).collect();
        for (port_lease, node) in (0..).zip(&nodes) {
            let (first, end) = (port_lease * SLOTS / 3, (port_lease + 1) * SLOTS / 3);
            // Epochs of their own spare them a quarrel about who is newer.
            node.run::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(port_lease + 1).to_string()]);
            node.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
            let (port, bus) = (node.port().to_string(), (node.port() + SECOND).to_string());
            nodes[0].run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self { nodes };
        cluster.wait_until_ok();
        cluster
    }

    /// Where clients go: all three.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// The servers.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The place among [`nodes`](Self::nodes) of the server that has `slot`.
    pub fn owner(&self, slot: u16) -> usize {
        let has = |line: &str| line.split(' ').skip(8).any(|range| range_has(range, slot));
        let known: String = self.nodes[0].run(&["CLUSTER", "NODES"]);
        let line = known.lines().find(|line| has(line)).unwrap();
        let is_it = |node: &Redis| line.contains(&format!(":{}@", node.port()));
        self.nodes.iter().position(is_it).unwrap()
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].run(&["CLUSTER", "KEYSLOT", key])
    }

    /// Returns when every server says that the cluster is whole.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_ok(&self) {
        let is_ok = |node: &Redis| {
            let info: String = node.run(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        wait_until("the cluster is whole", READY_WITHIN, || self.nodes.iter().all(is_ok));
    }

    /// Returns when the server at `place` says that the cluster is `ok` or `fail`.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_state(&self, place: usize, state: &str) {
        let says = format!("cluster_state:{state}");
        wait_until(&says, READY_WITHIN, || {
            self.nodes[place].run::<String>(&["CLUSTER", "INFO"]).contains(&says)
        });
    }

    /// Begins to move `slot` to the server at `to`: from now on both are asked. Its keys still lie where they were.
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let slot = slot.to_string();
        self.nodes[to].run::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        self.nodes[from].run::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves at most `count` keys of a slot whose move has begun, and answers how many there were.
    pub fn move_keys(&self, slot: u16, to: usize, count: usize) -> usize {
        let from = &self.nodes[self.owner(slot)];
        let (slot, count) = (slot.to_string(), count.to_string());
        let keys: Vec<String> = from.run(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]);
        if !keys.is_empty() {
            let port = self.nodes[to].port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            from.run::<()>(&words);
        }
        keys.len()
    }

    /// Ends the move of a slot: the rest of its keys, and then the slot itself.
    pub fn finish_move(&self, slot: u16, to: usize) {
        while self.move_keys(slot, to, 100) > 0 {}
        let (from, id) = (self.owner(slot), self.id(to));
        let slot = slot.to_string();
        // The new owner first: between the two nobody would have it.
        for node in [to, from] {
            self.nodes[node].run::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
        for node in (0..self.nodes.len()).filter(|node| *node != to && *node != from) {
            self.nodes[node].run::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].run(&["CLUSTER", "MYID"])
    }
}

/// `5` or `0-5460`; what stands in brackets is on its way and is listed beside them.
fn range_has(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&slot),
        _ => false,
    }
}
