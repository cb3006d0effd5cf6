//! Whether a store can do its work, and what it measures of itself.

use crate::{HistogramSnapshot, store::StoreError};

/// Whether a store can do its work now, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// New messages are taken. More of them than allowed ([`TooMany`](crate::store::StoreErrorKind::TooMany)) is no failure.
    pub accepting: Result<(), StoreError>,
    /// Due messages are claimed, and their outcomes are recorded.
    pub claiming: Result<(), StoreError>,
    /// The store's background threads run: flush, compaction, sweep.
    pub background: Result<(), StoreError>,
    /// Why some stored messages wait although the store works: a part of a disk that cannot be read, for example.
    pub degraded: Option<StoreError>,
    /// New messages for a part of the store are refused, and it has checked that it takes others: inserts that fail say
    /// nothing of these.
    pub refuses_some: bool,
}

impl Health {
    /// All is well.
    pub const fn healthy() -> Self {
        Self { accepting: Ok(()), claiming: Ok(()), background: Ok(()), degraded: None, refuses_some: false }
    }

    /// Nothing works, for one reason.
    pub fn failing(error: StoreError) -> Self {
        Self {
            accepting: Err(error.clone()),
            claiming: Err(error.clone()),
            background: Err(error),
            degraded: None,
            refuses_some: false,
        }
    }

    /// The first part that fails, if any.
    pub fn whole(&self) -> Result<(), StoreError> {
        self.accepting.clone().and_then(|()| self.claiming.clone()).and_then(|()| self.background.clone())
    }
}

/// Measurements of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// Time of one commit: write and sync.
    pub commit: HistogramSnapshot,
    /// Time of the sync within a commit.
    pub sync: HistogramSnapshot,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Bytes that wait to be made durable.
    pub waiting_bytes: u64,
    /// The store has no room for new messages.
    pub full: bool,
    /// Messages found unreadable since the store was opened. They are dead letters, or pending and never claimed.
    pub damaged: u64,
    /// Due messages that wait because the disk cannot read them now. They are claimed once it can.
    pub unread: u64,
    /// The claims log was missing when the store was opened: what was in flight then may be delivered again without a counted attempt.
    pub claims_log_missing: bool,
    /// Lanes in memory: those with messages, and those that had some a while ago.
    pub lanes: u64,
    /// Microseconds by which this machine's clock is ahead of the store's, if the store has a clock.
    pub clock_skew_us: Option<i64>,
    /// The index beside the store, if there is one.
    pub index: Option<IndexMetrics>,
}

/// Measurements of an index that can be rebuilt from the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexMetrics {
    /// Whether due messages are looked up in it now; otherwise they are looked up in the store.
    pub is_used: bool,
    /// Entries that matched nothing in the store and were dropped.
    pub dropped: u64,
    /// Entries that were missing and were added.
    pub restored: u64,
    /// Number of rebuilds.
    pub rebuilt: u64,
}
