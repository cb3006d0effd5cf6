//! The metrics of the store.

use std::io;

use duly_core::{Histogram, store::StoreMetrics};

use super::{SharedEngine, claim_log::ClaimLog, journal::Frame};

/// How long the journal takes.
#[derive(Default)]
pub(super) struct Timing {
    commit: Histogram,
    sync: Histogram,
}

impl Timing {
    /// Writes a frame and syncs it, and measures both.
    #[expect(clippy::disallowed_methods, reason = "measures only: nothing is decided by these instants")]
    pub(super) fn write(&self, frame: &mut Frame) -> io::Result<()> {
        let (file, base) = (frame.file.clone(), frame.base);
        let began = std::time::Instant::now();
        file.write_at(frame.seal(), base)?;
        let written = std::time::Instant::now();
        file.sync()?;
        self.sync.record(written.elapsed().as_micros() as u64);
        self.commit.record(began.elapsed().as_micros() as u64);
        Ok(())
    }
}

impl SharedEngine {
    pub(super) fn metrics(&self) -> StoreMetrics {
        let (disk_bytes, waiting_bytes, full, damaged, lanes) = {
            let engine = self.engine();
            let segment = engine.options.segment_bytes;
            let segments = (engine.journal.segment_count() + engine.journal.spare_count()) as u64;
            let tables: u64 = engine.tables.iter().map(|table| table.data_len() + table.keys().len()).sum();
            let claims = engine.in_flight.logs().len() as u64 * ClaimLog::room(segment);
            let disk_bytes = segments * segment + tables + engine.ended.file_bytes() + claims;
            let (waiting, full) = (engine.journal.waiting() as u64, engine.lifecycle.is_full());
            (disk_bytes, waiting, full, engine.damaged.total(), engine.lanes.len() as u64)
        };
        let mut metrics = StoreMetrics::default();
        (metrics.commit, metrics.sync) = (self.timing.commit.snapshot(), self.timing.sync.snapshot());
        (metrics.disk_bytes, metrics.waiting_bytes) = (disk_bytes, waiting_bytes);
        (metrics.full, metrics.damaged, metrics.lanes) = (full, damaged, lanes);
        let engine = self.engine();
        metrics.claims_log_missing = engine.in_flight.is_log_missing();
        metrics.unread = engine.tables.blocked().waiting() + engine.tables.unread().waiting();
        metrics
    }
}
