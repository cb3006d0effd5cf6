//! The backlog of a lane: what waits in runs comes into memory when its turn comes.

use bytes::Bytes;
use duly_core::{
    Timestamp,
    store::{StoreError, StoreErrorKind},
};

use super::{
    disk::DiskFile,
    engine::Engine,
    entry::{Garbled, Peek},
    index::Place,
    lanes::{HotEntry, NearKey},
    options::BLOCK_BYTES,
    table::{read_all, read_entry},
};

/// Entries of a run, read at once.
struct Block {
    arrivals: Vec<(NearKey, HotEntry)>,
    /// Their bytes.
    used: u64,
    next: Next,
}

/// What comes after the entries of a block.
enum Next {
    /// Nothing of this lane.
    End,
    /// An entry with this key.
    Key(NearKey),
    /// Something that cannot be read.
    Unread,
}

impl Engine {
    /// Brings the head of the lane's backlog into memory, if it goes before what is there. Says what is unread first.
    pub(super) fn refill(&mut self, number: u32, now: Timestamp) -> Result<Option<NearKey>, StoreError> {
        loop {
            let Some(lane) = self.lanes.get_mut(number) else { return Ok(None) };
            let Some((at, extent)) = lane.extents.iter().enumerate().min_by(|a, b| a.1.key.cmp(&b.1.key))
            else {
                return Ok(None);
            };
            let memory = lane.near.first_key_value().map(|(key, _)| key);
            if extent.key.ready > now || memory.is_some_and(|memory| *memory < extent.key) {
                return Ok(Some(extent.key.clone()));
            }
            let (table, from, end) = (extent.table, extent.next, extent.end);
            let Some(file) = self.tables.get(&table).map(|table| table.data.clone()) else {
                lane.extents.swap_remove(at);
                continue;
            };
            let block = read_block(&*file, table, from, end).map_err(unavailable)?;
            let after = from + block.used;
            let next = match block.next {
                Next::End => None,
                Next::Key(key) => Some((after, key)),
                Next::Unread => self.pass_over(table, after, end).map_err(unavailable)?,
            };
            if let Some(lane) = self.lanes.get_mut(number) {
                match next {
                    Some((next, key)) => {
                        lane.extents[at].next = next;
                        lane.extents[at].key = key;
                    }
                    None => {
                        lane.extents.swap_remove(at);
                    }
                }
            }
            for (key, near) in block.arrivals {
                // Not what is on its way back to a bucket, either: that one counts it.
                if self.index.marks(near.hash, near.place).is_some_and(|marks| marks.near && !marks.claimed) {
                    self.add_near(number, key, near);
                }
            }
        }
    }
}

/// Reads a block of a run from `from` on: at least one whole entry, if it can be read.
fn read_block(file: &dyn DiskFile, table: u32, from: u64, end: u64) -> std::io::Result<Block> {
    let mut len = BLOCK_BYTES.min(end - from);
    let mut block = read_all(file, from, len)?;
    // The block must hold one whole entry. A length that cannot be is not believed.
    let need = Peek::sure_length(&block).unwrap_or(0) as u64;
    if need > len && len < end - from {
        len = need.min(end - from);
        block = read_all(file, from, len)?;
    }
    let mut block = split_block(&block, from, end, table);
    if let (Next::Unread, [_]) = (&block.next, &*block.arrivals) {
        // One large entry. The key of the next is believed only with the whole of it: a wrong one could wait for ever.
        let next = read_entry(file, Place::new(table, from + block.used));
        if let Ok(key) = next.as_deref().map_err(|_| Garbled).and_then(Peek::framed).and_then(NearKey::of) {
            block.next = Next::Key(key);
        }
    }
    Ok(block)
}

/// The entries of a block of a run. Unless it reaches the end, the last whole one only gives its key.
fn split_block(block: &[u8], from: u64, end: u64, table: u32) -> Block {
    let mut arrivals = Vec::new();
    let mut at = 0;
    // Where it ends, an entry is cut by the end of the block, or bad: the next read tells which.
    while let Ok((peek, key)) = Peek::checked(&block[at..]).and_then(|peek| Ok((peek, NearKey::of(peek)?))) {
        let near = HotEntry {
            hash: key.id.hash64(),
            place: Place::new(table, from + at as u64),
            // A copy: a slice would keep the whole block in memory for as long as this one message waits.
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
        return Block { arrivals, used: last.place.offset() - from, next: Next::Key(key) };
    }
    Block { arrivals, used, next: Next::Unread }
}

fn unavailable(error: std::io::Error) -> StoreError {
    let what = format!("reading the data folder failed: {error}");
    StoreError::new(StoreErrorKind::Unavailable, what).with_source(error)
}
