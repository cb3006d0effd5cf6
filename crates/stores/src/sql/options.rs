//! How a store in a relational database is opened.

use std::time::Duration;

use duly_core::Limits;

use crate::shared::membership::{SHARDS_MAX, options_fault};

/// The limits and retention of a [`SqlStore`](super::SqlStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many parts it has. Kept in the database once the store is made; another number is refused.
    pub shards: u16,
    /// How long a delivered or cancelled message can still be asked for.
    pub retention: Duration,
    /// How many of them at most; the oldest go first.
    pub retention_max: usize,
    /// How many messages may wait at the same time, and what one may be that somebody else put into the table. What Duly accepts
    /// itself it has checked before.
    pub limits: Limits,
    /// How many connections to the database there are at most. One is enough, more let work go on side by side.
    pub connections: u32,
    /// Take a database that may lose what it committed when it crashes, as its settings say.
    pub allow_volatile: bool,
    /// Who this process is, different at every start: claims of [`Holder::Process`](duly_core::store::Holder) end with it.
    pub instance: u64,
    /// The name of this node, the same at every start and no other node's. Whoever comes with the name of a node that is
    /// there takes its place.
    pub node: String,
    /// How long a node that says nothing is taken to be there: then others deliver what it did.
    pub lease: Duration,
    /// How long the database keeps a connection that says nothing, also in the middle of a transaction: then it rolls back and frees its
    /// locks. A node that is lost together with its machine closes no connection, and holds up the others for this long.
    pub idle_max: Duration,
}

impl Options {
    /// The most shards of a store.
    pub const SHARDS_MAX: u16 = SHARDS_MAX;

    /// The shortest [`idle_max`](Self::idle_max): MySQL counts whole seconds.
    const IDLE_MIN: Duration = Duration::from_secs(1);

    /// The defaults, for a process that drew this number at random.
    pub fn new(instance: u64) -> Self {
        Self {
            shards: 16,
            retention: Duration::from_secs(24 * 3600),
            retention_max: 1_000_000,
            limits: Limits::default(),
            connections: 16,
            allow_volatile: false,
            instance,
            node: "node".into(),
            lease: Duration::from_secs(10),
            idle_max: Duration::from_secs(15),
        }
    }

    /// Why these options cannot be used.
    pub(super) fn fault(&self) -> Option<String> {
        if self.connections == 0 {
            return Some("a store needs at least one connection".into());
        }
        if self.idle_max < Self::IDLE_MIN {
            return Some(format!(
                "a connection may be idle for at least {:?}, not {:?}",
                Self::IDLE_MIN,
                self.idle_max
            ));
        }
        options_fault(self.shards, &self.node)
    }
}
