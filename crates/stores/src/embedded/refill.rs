//! The backlog of a lane: entries in runs are read into the hot window when their turn comes.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::Timestamp;

use super::{
    disk::DiskFile,
    engine::Engine,
    entry::{Garbled, Peek},
    index::Position,
    lanes::{Extent, HotEntry, ReleaseKey},
    options::BLOCK_BYTES,
    survey::UnreadPart,
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
    /// Reads the head of the lane's backlog into the hot window, if it goes before what is there.
    pub(super) fn refill(&mut self, number: u32, now: Timestamp) -> BacklogHead {
        loop {
            let Some(lane) = self.lanes.get(number) else { return BacklogHead::none() };
            let extent = lane.first_extent();
            let again = self.tables.unread().due(number, self.now.mono());
            let is_again = again.is_some_and(|again| extent.is_none_or(|extent| again.key <= extent.key));
            let Some(extent) = again.filter(|_| is_again).or(extent) else { return BacklogHead::none() };
            let Extent { table, next: from, end, key: first } = extent.clone();
            let memory = lane.hot().first_key_value().map(|(key, _)| key);
            if first.ready > now || memory.is_some_and(|memory| *memory < first) {
                return BacklogHead { key: Some(first), unread: None };
            }
            let failed = UnreadPart { table, from, end, suspect_to: from + BLOCK_BYTES };
            let Some(file) = self.tables.get(table).map(|table| table.data().clone()) else {
                self.tables.unread_mut().forget_table(table);
                self.advance_extent(number, (table, from), None);
                continue;
            };
            if is_again {
                return BacklogHead { key: Some(first), unread: Some(failed) };
            }
            // What the disk cannot read is looked at entry by entry, without the lock.
            let Ok(block) = read_block(&*file, table, from, end) else {
                return BacklogHead { key: Some(first), unread: Some(failed) };
            };
            let after = from + block.used;
            let (next, unread) = match block.next {
                Next::End => (None, None),
                Next::Key(key) => (Some((after, key)), None),
                // The key of what follows is not known. It does not go before the first of this block.
                Next::Unread => (Some((after, first.clone())), Some(UnreadPart::damaged(table, after..end))),
            };
            self.advance_extent(number, (table, from), next);
            let Some(mut lane) = self.lanes.get_mut(number) else { return BacklogHead::none() };
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
            if unread.is_some() {
                return BacklogHead { key: Some(first), unread };
            }
        }
    }

    fn advance_extent(&mut self, lane: u32, (table, from): (u32, u64), next: Option<(u64, ReleaseKey)>) {
        if let Some(mut lane) = self.lanes.get_mut(lane)
            && let Some(at) = lane.extent_at(table, from)
        {
            lane.advance_extent(at, next);
        }
    }

    /// The files of a table with an unread part: data, keys, and the length of the keys. `None` if the lane's backlog has gone on meanwhile.
    pub(super) fn files_of_unread(&self, lane: u32, part: &UnreadPart) -> Option<TableFiles> {
        let in_backlog = || self.lanes.get(lane)?.extent_at(part.table, part.from);
        if in_backlog().is_none() && !self.tables.unread().has(lane, part) {
            return None;
        }
        let table = self.tables.get(part.table)?;
        Some((table.data().clone(), table.keys().file().clone(), table.keys().len()))
    }
}

/// Data, keys, and the length of the keys.
pub(super) type TableFiles = (Arc<dyn DiskFile>, Arc<dyn DiskFile>, u64);

/// Where the backlog of a lane goes on.
pub(super) struct BacklogHead {
    /// The first key that stays on disk.
    pub(super) key: Option<ReleaseKey>,
    /// What must be [passed over](super::Shared::pass_over_backlog) first.
    pub(super) unread: Option<UnreadPart>,
}

impl BacklogHead {
    fn none() -> Self {
        Self { key: None, unread: None }
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
