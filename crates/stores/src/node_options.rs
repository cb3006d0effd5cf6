//! What a process brings to the store that it opens, whichever that is.

use std::time::Duration;

use duly_core::Limits;

/// Who opens a store, and what it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// The name of this node, the same at every start and no other node's.
    pub name: String,
    /// The number of this process, different at every start: draw it at random.
    pub instance: u64,
    /// How long a node that says nothing counts as alive: then others deliver what it did.
    pub lease: Duration,
    /// What is kept of messages that have ended.
    pub retention: Retention,
    /// Limits of pending messages, and of messages that the outbox imports.
    pub limits: Limits,
}

/// What is kept of messages that have ended. The oldest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For how long they can be asked for.
    pub span: Duration,
    /// How many of them at most.
    pub max: usize,
}

impl Retention {
    /// A day, and a million messages: what ended costs disk, or is lost soon anyway.
    pub const LONG: Self = Self { span: Duration::from_secs(24 * 3600), max: 1_000_000 };

    /// An hour, and 100,000 messages: what ended costs memory of a server.
    pub const SHORT: Self = Self { span: Duration::from_secs(3600), max: 100_000 };
}
