//! What a store tells of the messages in it.

use crate::{Lane, MessageId, Record, Timestamp};

/// One page of a list.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Page {
    /// By `(due, id)`, bodies left out.
    pub records: Vec<Record>,
    /// What to ask for as `after`, if there may be more.
    pub next: Option<(Timestamp, MessageId)>,
}

impl Page {
    /// These records, and where the next page begins.
    pub fn new(records: Vec<Record>, next: Option<(Timestamp, MessageId)>) -> Self {
        Self { records, next }
    }
}

/// One lane at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStatus {
    /// Which.
    pub lane: Lane,
    /// Paused by an operator.
    pub paused: bool,
    /// Waiting, due or not.
    pub pending: u64,
    /// Waiting and due.
    pub ready: u64,
    /// Claimed.
    pub in_flight: u64,
    /// Given up.
    pub dead: u64,
    /// The oldest time among those waiting and due.
    pub oldest_ready: Option<Timestamp>,
}

impl LaneStatus {
    /// A lane with nothing in it.
    pub fn empty(lane: Lane) -> Self {
        Self { lane, paused: false, pending: 0, ready: 0, in_flight: 0, dead: 0, oldest_ready: None }
    }
}

/// The totals since the store was made. Always balanced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Taken, duplicates aside.
    pub accepted: u64,
    /// Waiting now.
    pub pending: u64,
    /// Claimed now.
    pub in_flight: u64,
    /// Ever delivered.
    pub delivered: u64,
    /// Ever cancelled.
    pub cancelled: u64,
    /// Dead letters now.
    pub dead: u64,
    /// Dead letters ever purged.
    pub purged: u64,
}

impl Totals {
    /// What has ever happened, with nothing there now.
    pub fn ever(accepted: u64, delivered: u64, cancelled: u64, purged: u64) -> Self {
        Self { accepted, delivered, cancelled, purged, ..Self::default() }
    }

    /// The same with what is there now.
    #[must_use]
    pub fn now(self, pending: u64, in_flight: u64, dead: u64) -> Self {
        Self { pending, in_flight, dead, ..self }
    }

    /// Whether nothing is missing and nothing is there twice.
    pub fn balance(&self) -> bool {
        self.accepted
            == self.pending + self.in_flight + self.delivered + self.cancelled + self.dead + self.purged
    }
}
