//! How messages move on disk: buffers into buckets, wide buckets into narrow ones, near ones into memory, and what
//! nobody takes into runs. All of it happens on the keeper's thread, from what the journal already made durable.

mod flush;
mod narrow;
mod opening;
mod relocate;
mod runs;

use std::io;

use bytes::Bytes;

use super::{index::Place, lanes::NearKey};

/// An entry on its way to a run.
pub(in crate::embedded) struct Moving {
    pub(in crate::embedded) lane: u32,
    pub(in crate::embedded) key: NearKey,
    pub(in crate::embedded) hash: u64,
    pub(in crate::embedded) from: Place,
    pub(in crate::embedded) data: Bytes,
    pub(in crate::embedded) suspect: bool,
}

fn garbled(table: u32, at: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the entry at byte {at} of table {table} does not match its checksum"),
    )
}
