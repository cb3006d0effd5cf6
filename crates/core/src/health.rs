//! Whether a store can do its work, and what it measures of itself.

use crate::{HistogramSnapshot, store::StoreError};

/// Whether a store can do its work now, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// New messages are taken. More of them than allowed ([`TooMany`](crate::store::StoreErrorKind::TooMany)) is no failure.
    pub accepting: Result<(), StoreError>,
    /// What is due is given out, and what became of it recorded.
    pub claiming: Result<(), StoreError>,
    /// What the store does beside the calls goes on: a thread of it that died does nothing any more.
    pub background: Result<(), StoreError>,
    /// Why some of the stored messages wait while all others go on, such as a part of a disk that cannot be read. The store can do its
    /// work all the same.
    pub degraded: Option<StoreError>,
}

impl Health {
    /// All is well.
    pub const fn healthy() -> Self {
        Self { accepting: Ok(()), claiming: Ok(()), background: Ok(()), degraded: None }
    }

    /// Nothing works, for one reason.
    pub fn failing(error: StoreError) -> Self {
        Self {
            accepting: Err(error.clone()),
            claiming: Err(error.clone()),
            background: Err(error),
            degraded: None,
        }
    }

    /// The first part that fails, if any.
    pub fn whole(&self) -> Result<(), StoreError> {
        self.accepting.clone().and_then(|()| self.claiming.clone()).and_then(|()| self.background.clone())
    }
}

/// What a store measures of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreMetrics {
    /// How long it takes to make changes durable once they are being written: write and sync.
    pub commit: HistogramSnapshot,
    /// How long the sync of them takes.
    pub sync: HistogramSnapshot,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Bytes that wait to be made durable.
    pub waiting_bytes: u64,
    /// It has no room for new messages.
    pub full: bool,
    /// Messages that it could not read any more, since it was opened. They are dead letters, or pending and never claimed.
    pub damaged: u64,
    /// The log of claims was missing when it was opened: what was in flight then may be delivered again without a counted attempt.
    pub claims_log_missing: bool,
    /// Lanes that it keeps in memory: those that hold something, and those that held something a while ago.
    pub lanes: u64,
    /// How far this machine's clock is ahead of the store's, in microseconds, if the store has one.
    pub clock_skew_us: Option<i64>,
    /// How it is with the index beside the store, if it has one.
    pub index: Option<IndexMetrics>,
}

/// How it is with an index that can be built again from the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexMetrics {
    /// Whether messages are found by it at the moment; if not, they are found in the store itself.
    pub is_used: bool,
    /// Entries that matched nothing in the store and were dropped.
    pub dropped: u64,
    /// Messages that it should have had and had not, and has now.
    pub restored: u64,
    /// How often it was built anew.
    pub rebuilt: u64,
}
