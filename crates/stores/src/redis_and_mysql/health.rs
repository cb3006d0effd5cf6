//! Whether the index can be relied upon, and how far ahead.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use duly_core::{Monotonic, Now, Timestamp, store::IndexMetrics};

/// What this node knows of the index.
#[derive(Debug, Default)]
pub(super) struct Health {
    state: Mutex<IndexState>,
    dropped: AtomicU64,
    restored: AtomicU64,
    rebuilt: AtomicU64,
}

#[derive(Debug, Default, Clone)]
pub(super) struct IndexState {
    /// Its number, while it is reachable and complete.
    pub(super) epoch: Option<u64>,
    /// The number it last had, and the run of the server that it was in.
    pub(super) last: Option<(u64, String)>,
    /// It had everything that is ready by then, at its last upkeep.
    pub(super) whole: Timestamp,
    /// It has everything that is ready by then, whatever came since.
    pub(super) covered: Timestamp,
    /// When its last upkeep was.
    pub(super) tended: Option<Monotonic>,
    /// The failure has been logged.
    is_reported: bool,
}

impl Health {
    pub(super) fn lock(&self) -> MutexGuard<'_, IndexState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the index, if what is due now is found by it.
    pub(super) fn relied_on(&self, now: Now) -> bool {
        let state = self.lock();
        state.epoch.is_some() && now.wall() <= state.covered
    }

    /// A call to the index failed: until upkeep has checked it, everything is found in MySQL.
    pub(super) fn record_failure(&self, why: &impl std::fmt::Display) {
        let mut state = self.lock();
        state.epoch = None;
        if !std::mem::replace(&mut state.is_reported, true) {
            tracing::warn!(
                %why,
                "index unavailable; delivery continues from MySQL with more lateness until the index is rebuilt"
            );
        }
    }

    /// The index is reachable and complete.
    pub(super) fn good(&self, epoch: u64, run: String) {
        let mut state = self.lock();
        state.epoch = Some(epoch);
        state.last = Some((epoch, run));
        if std::mem::replace(&mut state.is_reported, false) {
            tracing::info!("index recovered");
        }
    }

    pub(super) fn dropped(&self, entries: u64) {
        self.dropped.fetch_add(entries, Ordering::Relaxed);
    }

    pub(super) fn restored(&self, entries: u64) {
        if entries > 0 {
            tracing::debug!(entries, "missing index entries restored");
        }
        self.restored.fetch_add(entries, Ordering::Relaxed);
    }

    pub(super) fn rebuilt(&self) {
        self.rebuilt.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> IndexMetrics {
        let mut metrics = IndexMetrics::default();
        metrics.is_used = self.lock().epoch.is_some();
        metrics.dropped = self.dropped.load(Ordering::Relaxed);
        metrics.restored = self.restored.load(Ordering::Relaxed);
        metrics.rebuilt = self.rebuilt.load(Ordering::Relaxed);
        metrics
    }
}
