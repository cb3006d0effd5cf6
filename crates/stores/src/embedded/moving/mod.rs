//! How messages move on disk: buffers into buckets, wide buckets into narrow ones, near ones into memory, and what
//! nobody takes into runs. All of it happens on the background thread's thread, from what the journal already made durable.

pub(super) mod blocked;
#[cfg(test)]
mod blocked_tests;
mod flush;
mod narrow;
mod opening;
mod relocate;
mod retreat;
mod runs;
#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{disk::DiskFile, index::Place, lanes::NearKey, table::read_entry};

/// An entry on its way to a run.
pub(in crate::embedded) struct Moving {
    pub(in crate::embedded) lane: u32,
    pub(in crate::embedded) key: NearKey,
    pub(in crate::embedded) hash: u64,
    pub(in crate::embedded) from: Place,
    pub(in crate::embedded) data: Bytes,
    pub(in crate::embedded) suspect: bool,
}

impl Moving {
    /// With its entry, read from `file` unless it is in memory. As it was if it cannot be read yet.
    fn loaded(self, file: Option<Arc<dyn DiskFile>>) -> Result<Self, Self> {
        if !self.data.is_empty() {
            return Ok(self);
        }
        match file.map(|file| read_entry(&*file, self.from)) {
            Some(Ok(data)) => Ok(Self { data: Bytes::from(data), ..self }),
            _ => Err(self),
        }
    }
}

fn garbled(table: u32, at: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the entry at byte {at} of table {table} does not match its checksum"),
    )
}
