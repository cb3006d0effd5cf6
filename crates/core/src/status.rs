//! Lists, lanes and totals of a store.

use crate::{Lane, MessageId, Record, Timestamp};

/// One page of a list.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Page {
    /// By `(due, id)`, bodies left out.
    pub records: Vec<Record>,
    /// The `after` of the next page, if there may be more.
    pub next: Option<(Timestamp, MessageId)>,
}

impl Page {
    /// Bytes of the records of a page, unless the first alone has more. With more, the page ends and says where it goes on. A limit on the
    /// number of records alone would let a thousand large ones fill the memory.
    pub const BYTES_MAX: usize = 4 * 1024 * 1024;

    /// A page of these records, as far as they fit.
    pub fn new(mut records: Vec<Record>, next: Option<(Timestamp, MessageId)>) -> Self {
        let fitting = Self::fitting(&records);
        if fitting == records.len() {
            return Self { records, next };
        }
        records.truncate(fitting);
        let next = records.last().map(|record| (record.message.due, record.message.id.clone()));
        Self { records, next }
    }

    /// How many of these, in order, fit on a page.
    pub fn fitting<'a>(records: impl IntoIterator<Item = &'a Record>) -> usize {
        let mut bytes = 0_usize;
        let fits = |(place, record): &(usize, &Record)| {
            bytes = bytes.saturating_add(record.listed_bytes());
            *place == 0 || bytes <= Self::BYTES_MAX
        };
        records.into_iter().enumerate().take_while(fits).count()
    }
}

/// The status of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStatus {
    /// The lane.
    pub lane: Lane,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Pending messages.
    pub pending: u64,
    /// Pending messages that are ready.
    pub ready: u64,
    /// Messages in flight.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// Ready time of the oldest ready message.
    pub oldest_ready: Option<Timestamp>,
}

impl LaneStatus {
    /// A lane with nothing in it.
    pub fn empty(lane: Lane) -> Self {
        Self { lane, paused: false, pending: 0, ready: 0, in_flight: 0, dead: 0, oldest_ready: None }
    }
}

/// Totals since the store was created. They always balance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Accepted, without duplicates.
    pub accepted: u64,
    /// Pending now.
    pub pending: u64,
    /// In flight now.
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
    /// The cumulative counts, with no messages now.
    pub fn ever(accepted: u64, delivered: u64, cancelled: u64, purged: u64) -> Self {
        Self { accepted, delivered, cancelled, purged, ..Self::default() }
    }

    /// Adds the current counts.
    #[must_use]
    pub fn now(self, pending: u64, in_flight: u64, dead: u64) -> Self {
        Self { pending, in_flight, dead, ..self }
    }

    /// Whether the ledger balances: nothing is missing, nothing is counted twice.
    pub fn balance(&self) -> bool {
        self.accepted
            == self.pending + self.in_flight + self.delivered + self.cancelled + self.dead + self.purged
    }
}
