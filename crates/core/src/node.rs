//! The nodes that share a store.

use crate::{Lane, Timestamp};

/// One node of a shared store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its unique name.
    pub name: String,
    /// Whether it is the node that answers.
    pub this: bool,
    /// Its version.
    pub version: String,
    /// The lanes that it serves, as far as it reports them.
    pub lanes: Vec<String>,
    /// Shards that it owns, over all lanes of sinks.
    pub shards: u32,
    /// Clock skew against the store in microseconds; positive is ahead.
    pub clock_skew_us: i64,
}

impl NodeStatus {
    /// A node without lanes.
    pub fn new(name: impl Into<String>, this: bool, version: impl Into<String>) -> Self {
        Self { name: name.into(), this, version: version.into(), ..Self::default() }
    }
}

/// One shard of a shared store: a part of the messages of every lane, by the hash of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// Its number, from 0.
    pub shard: u32,
    /// Owners by lane. A lane without a live owner is left out until another node takes it. Lanes of the built-in queue
    /// have no owner: every node claims from all of them.
    pub owners: Vec<ShardOwner>,
    /// Ready time of the oldest unclaimed message, in lanes that are not paused.
    pub oldest: Option<Timestamp>,
}

impl ShardStatus {
    /// A shard without owners and messages.
    pub fn new(shard: u32) -> Self {
        Self { shard, ..Self::default() }
    }
}

/// The owner of one lane in one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardOwner {
    /// What it delivers.
    pub lane: Lane,
    /// The node's name.
    pub node: String,
}

impl ShardOwner {
    /// The node of this name delivers this lane.
    pub fn new(lane: Lane, node: impl Into<String>) -> Self {
        Self { lane, node: node.into() }
    }
}
