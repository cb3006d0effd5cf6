//! Options of the store, and limits that are fixed.

use std::{sync::Arc, time::Duration};

use super::disk::{Disk, RealDisk};

/// Messages that may be in flight at the same time, over all lanes. A lane may have as many in flight as are left to all others:
/// half of the limit if it is the only one.
pub(super) const IN_FLIGHT_MAX: usize = 100_000;
/// Messages of a lane that may be in flight at the same time, however many the other lanes have.
pub(super) const LANE_IN_FLIGHT_MIN: usize = 64;
/// Damaged messages that are remembered until they are dead letters. Others are quarantined as well, and found again at the next
/// start.
pub(super) const DAMAGED_MAX: usize = 10_000;
/// Bytes of messages that a batch has in memory at a time. A larger batch is handled in pieces.
pub(super) const PIECE_BYTES: usize = 4 << 20;
/// Bytes that may wait for the journal's writer before callers wait.
pub(super) const WAITING_BYTES_MAX: usize = 8 << 20;
/// Memory of one message of the hot window besides its entry.
pub(super) const NEAR_COST: usize = 160;
/// Entries that background work handles under one hold of the lock.
pub(super) const STEP: usize = 512;
/// Bytes of a run that are read at a time for a lane that drains its backlog.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
/// How long until a part of a file, or a message, is read again that the disk could not read.
pub(super) const UNREAD_AFTER: Duration = Duration::from_secs(10);
/// Bytes of ended messages that may be in memory before they are written.
pub(super) const ENDED_BYTES_MAX: usize = 4 << 20;
/// Runs that may exist at the same time before the small ones are merged.
pub(super) const RUNS_MAX: usize = 24;

/// The most bytes of a segment or a table: half of what a position can address, so that the last entry may exceed it.
pub const FILE_BYTES_MAX: u64 = 16 << 30;
/// Bytes of a slice of ended messages after which another one is begun.
pub(super) const SLICE_BYTES_MAX: u64 = 1 << 30;

/// How an embedded store is set up. The defaults suit a server with a few hundred megabytes to spare.
#[derive(Clone)]
pub struct Options {
    /// How long ended messages can be asked for.
    pub retention: Duration,
    /// The most ended messages that are kept.
    pub retention_max: usize,
    /// Messages that may wait at the same time.
    pub pending_max: u64,
    /// Messages that may be claimed at the same time, over all lanes.
    pub in_flight_max: usize,
    /// Bytes of a journal segment.
    pub segment_bytes: u64,
    /// Bytes of journal after which a checkpoint is made, so that opening stays quick.
    pub checkpoint_bytes: u64,
    /// Bytes of the hot window.
    pub window_bytes: usize,
    /// Bytes in the buffers of all buckets before they are written.
    pub buffer_bytes: usize,
    /// Bytes of a bucket that are read at a time.
    pub chunk_bytes: u64,
    /// Bytes of a table after which another one is begun. At most [`FILE_BYTES_MAX`].
    pub table_bytes: u64,
    /// The file layer.
    pub disk: Arc<dyn Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(24 * 3600),
            retention_max: 1_000_000,
            pending_max: 1_000_000_000,
            in_flight_max: IN_FLIGHT_MAX,
            segment_bytes: 32 << 20,
            checkpoint_bytes: 64 << 20,
            window_bytes: 48 << 20,
            buffer_bytes: 16 << 20,
            chunk_bytes: 16 << 20,
            table_bytes: 4 << 30,
            disk: Arc::new(RealDisk),
        }
    }
}

impl Options {
    /// The same, with files not larger than positions can address.
    pub(super) fn bounded(self) -> Self {
        Self {
            segment_bytes: self.segment_bytes.min(FILE_BYTES_MAX),
            table_bytes: self.table_bytes.min(FILE_BYTES_MAX),
            ..self
        }
    }

    /// Small files, for tests: everything happens a thousand times sooner.
    pub fn small() -> Self {
        Self {
            segment_bytes: 256 << 10,
            checkpoint_bytes: 256 << 10,
            window_bytes: 256 << 10,
            buffer_bytes: 64 << 10,
            chunk_bytes: 64 << 10,
            ..Self::default()
        }
    }
}
