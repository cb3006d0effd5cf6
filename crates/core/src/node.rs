//! The nodes that share a store.

/// One node, as the store knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
