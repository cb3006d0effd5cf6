//! How entries move: from buffers to the tables of buckets (`flush`), from wide buckets to narrow ones (`split`), from the narrowest
//! into the hot window (`load`), from there to runs if nobody claims them (`spill`), and out of old journal segments (`relocate`). The
//! background thread does all of it, with entries that the journal has made durable.

pub(super) mod blocked;
#[cfg(test)]
mod blocked_tests;
mod flush;
mod load;
mod relocate;
mod retreat;
mod runs;
mod split;
#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{disk::DiskFile, index::Position, lanes::ReleaseKey, table::read_entry};

/// An entry on its way to a run.
pub(in crate::embedded) struct RunEntry {
    pub(in crate::embedded) lane: u32,
    pub(in crate::embedded) key: ReleaseKey,
    pub(in crate::embedded) hash: u64,
    pub(in crate::embedded) from: Position,
    pub(in crate::embedded) data: Bytes,
    pub(in crate::embedded) suspect: bool,
}

impl RunEntry {
    /// Reads its entry from `file`, unless it is in memory. Returns it unchanged as an error if it cannot be read yet.
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
