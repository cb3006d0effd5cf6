//! The backlog of a lane: entries in runs are read into the hot window when their turn comes.

use bytes::Bytes;
use duly_core::{
    Timestamp,
    store::{StoreError, StoreErrorKind},
};

use super::{
    disk::DiskFile,
    engine::Engine,
    entry::{Garbled, Peek},
    index::Position,
    lanes::{HotEntry, ReleaseKey},
    options::BLOCK_BYTES,
    table::{read_all, read_entry},
};

/// Entries of a run, read at once.
struct Block {
    arrivals: Vec<(ReleaseKey, HotEntry)>,
    /// Their bytes.
    used: u64,
    next: Next,
}

/// The rest after the entries of a block.
enum Next {
    /// Nothing of this lane.
    End,
    /// An entry with this key.
    Key(ReleaseKey),
    /// Something that cannot be read.
    Unread,
}

impl Engine {
    /// Reads the head of the lane's backlog into the hot window, if it goes before what is there. Returns the first key that stays on disk.
    pub(super) fn refill(&mut self, number: u32, now: Timestamp) -> Result<Option<ReleaseKey>, StoreError> {
        loop {
            let Some(mut lane) = self.lanes.get_mut(number) else { return Ok(None) };
            let Some((at, extent)) = lane.first_extent() else { return Ok(None) };
            let memory = lane.hot().first_key_value().map(|(key, _)| key);
            if extent.key.ready > now || memory.is_some_and(|memory| *memory < extent.key) {
                return Ok(Some(extent.key.clone()));
            }
            let (table, from, end) = (extent.table, extent.next, extent.end);
            let Some(file) = self.tables.get(table).map(|table| table.data().clone()) else {
                lane.advance_extent(at, None);
                continue;
            };
            let block = read_block(&*file, table, from, end).map_err(unavailable)?;
            let after = from + block.used;
            let next = match block.next {
                Next::End => None,
                Next::Key(key) => Some((after, key)),
                Next::Unread => self.pass_over(table, after, end).map_err(unavailable)?,
            };
            let Some(mut lane) = self.lanes.get_mut(number) else { return Ok(None) };
            lane.advance_extent(at, next);
            for (key, near) in block.arrivals {
                // An entry on its way back to a bucket is not near: the bucket counts it.
                if self
                    .index
                    .marks(near.hash, near.position)
                    .is_some_and(|marks| marks.near && !marks.claimed)
                {
                    lane.insert_hot(key, near);
                }
            }
        }
    }
}

/// Reads a block of a run from `from` on: at least one whole entry, if it can be read.
fn read_block(file: &dyn DiskFile, table: u32, from: u64, end: u64) -> std::io::Result<Block> {
    let mut len = BLOCK_BYTES.min(end - from);
    let mut block = read_all(file, from, len)?;
    // The block must hold one whole entry. A length that cannot be true is ignored.
    let need = Peek::sure_length(&block).unwrap_or(0) as u64;
    if need > len && len < end - from {
        len = need.min(end - from);
        block = read_all(file, from, len)?;
    }
    let mut block = split_block(&block, from, end, table);
    if let (Next::Unread, [_]) = (&block.next, &*block.arrivals) {
        // One large entry. The key of the next one is taken only from a whole entry with a valid checksum: a wrong key could wait for ever.
        let next = read_entry(file, Position::new(table, from + block.used));
        if let Ok(key) = next.as_deref().map_err(|_| Garbled).and_then(Peek::framed).and_then(ReleaseKey::of)
        {
            block.next = Next::Key(key);
        }
    }
    Ok(block)
}

/// The entries of a block of a run. Unless the block reaches the end of the extent, its last whole entry gives only the next key.
fn split_block(block: &[u8], from: u64, end: u64, table: u32) -> Block {
    let mut arrivals = Vec::new();
    let mut at = 0;
    // The loop ends at an entry that is cut by the end of the block, or damaged. The next read shows which.
    while let Ok((peek, key)) = Peek::checked(&block[at..]).and_then(|peek| Ok((peek, ReleaseKey::of(peek)?)))
    {
        let near = HotEntry {
            hash: key.id.hash64(),
            position: Position::new(table, from + at as u64),
            // A copy: a slice would keep the whole block in memory while this one message waits.
            data: Some(Bytes::copy_from_slice(&block[at..at + peek.len()])),
            suspect: peek.is_lost(),
        };
        arrivals.push((key, near));
        at += peek.len();
    }
    let used = at as u64;
    if from + used >= end {
        return Block { arrivals, used, next: Next::End };
    }
    if arrivals.len() > 1
        && let Some((key, last)) = arrivals.pop()
    {
        return Block { arrivals, used: last.position.offset() - from, next: Next::Key(key) };
    }
    Block { arrivals, used, next: Next::Unread }
}

fn unavailable(error: std::io::Error) -> StoreError {
    let what = format!("reading the data folder failed: {error}");
    StoreError::new(StoreErrorKind::Unavailable, what).with_source(error)
}
