//! How a store in Redis is opened.

use std::time::Duration;

use crate::shared::membership::{SHARDS_MAX, options_fault};

/// Options of a [`RedisStore`](super::RedisStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The store's name: several may share one Redis.
    pub prefix: String,
    /// How many parts it has. Kept in Redis once the store is made; another number is refused.
    pub shards: u16,
    /// How long a delivered or cancelled message can still be asked for.
    pub retention: Duration,
    /// How many of them at most, to the next multiple of the shards; the oldest go first.
    pub retention_max: usize,
    /// How many messages may wait at the same time.
    pub pending_max: u64,
    /// Take a Redis that may lose what it said it has: without its append-only file, or evicting.
    pub allow_volatile: bool,
    /// How many replicas must have a message before it is accepted: Redis's `WAIT`. Not with a Cluster.
    pub wait_replicas: u16,
    /// The number of this process, different at every start: claims of [`Holder::Process`](duly_core::store::Holder) end with it.
    pub instance: u64,
    /// The name of this node, the same at every start and no other node's. Whoever comes with the name of a node that is
    /// there takes its place.
    pub node: String,
    /// How long a node without a heartbeat counts as alive. After that, other nodes take over its shards.
    pub lease: Duration,
}

impl Options {
    /// The most shards of a store.
    pub const SHARDS_MAX: u16 = SHARDS_MAX;

    /// Defaults, for a process with this random instance number.
    pub fn new(instance: u64) -> Self {
        Self {
            prefix: "main".into(),
            shards: 16,
            retention: Duration::from_secs(3600),
            retention_max: 100_000,
            pending_max: 1_000_000_000,
            allow_volatile: false,
            wait_replicas: 0,
            instance,
            node: "node".into(),
            lease: Duration::from_secs(10),
        }
    }

    /// How many ended messages a shard keeps.
    pub(super) fn ended_max_per_shard(&self) -> usize {
        self.retention_max.div_ceil(usize::from(self.shards))
    }

    /// Why these options cannot be used.
    pub(super) fn fault(&self) -> Option<String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.chars().all(good) {
            return Some(format!(
                "a prefix has 1 to 64 of A-Z a-z 0-9 - _ . and {:?} is no such name",
                self.prefix
            ));
        }
        options_fault(self.shards, &self.node)
    }
}
