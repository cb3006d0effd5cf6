//! The nodes that share a store.

use crate::{Lane, Timestamp};

/// One node, as the store knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name, which no other node has.
    pub name: String,
    /// Whether it is the one that was asked.
    pub this: bool,
    /// Its version.
    pub version: String,
    /// The lanes that it serves, as many as it tells of.
    pub lanes: Vec<String>,
    /// How many shards of its lanes to sinks it delivers, all of them together.
    pub shards: u32,
    /// How far its machine's clock is ahead of the store's, in microseconds.
    pub clock_skew_us: i64,
}

impl NodeStatus {
    /// A node that serves nothing yet.
    pub fn new(name: impl Into<String>, this: bool, version: impl Into<String>) -> Self {
        Self { name: name.into(), this, version: version.into(), ..Self::default() }
    }
}

/// One shard of a store that nodes share: a part of the messages of every lane, by the hashes of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// Its number, from 0.
    pub shard: u32,
    /// Who delivers what of it to sinks, by lane. A lane whose owner is gone is left out until another node has taken it. Lanes of
    /// the built-in queue have no owner: every node hands out of all of them.
    pub owners: Vec<ShardOwner>,
    /// Since when the oldest of its messages could have been claimed that was not, in lanes that are not paused.
    pub oldest: Option<Timestamp>,
}

impl ShardStatus {
    /// A shard in which nobody delivers and nothing waits.
    pub fn new(shard: u32) -> Self {
        Self { shard, ..Self::default() }
    }
}

/// Who delivers one lane of one shard.
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
