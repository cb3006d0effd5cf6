//! Looks at the entries of a part of a table one by one, where many could not be read at once: which can be read, which are damaged, and
//! which the disk cannot read now.

use std::{io, ops::Range};

use duly_core::MessageId;

use super::{
    damage::Damaged,
    disk::DiskFile,
    entry::{self, Peek},
    index::Position,
    lanes::ReleaseKey,
    table::{KeyRecord, keys, read_all, read_entry},
};

/// Bytes that are passed over behind an entry that the disk cannot read before another one is tried, doubled each time: a read that fails
/// may take a disk seconds.
const SKIP_BYTES: u64 = 4 << 10;

/// A part of a table that cannot be read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnreadPart {
    pub(super) table: u32,
    pub(super) from: u64,
    pub(super) end: u64,
    /// The disk failed somewhere before this byte: readable entries before it do not say that the next ones can be read at once.
    pub(super) suspect_to: u64,
}

impl UnreadPart {
    /// A part that begins with a damaged entry.
    pub(super) fn damaged(table: u32, range: Range<u64>) -> Self {
        Self { table, from: range.start, end: range.end, suspect_to: range.start }
    }
}

/// What the disk cannot read: from an entry up to the next one that it can read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) range: Range<u64>,
    pub(super) error: io::Error,
}

/// What was found in a part of a table.
#[derive(Debug)]
pub(super) struct Survey {
    part: UnreadPart,
    pub(super) damaged: Vec<Damaged>,
    /// The first entry that can be read, and lies before what the disk cannot read.
    pub(super) head: Option<(u64, ReleaseKey)>,
    pub(super) unreadable: Option<Unreadable>,
    /// The first entry that can be read behind that.
    pub(super) rest: Option<(u64, ReleaseKey)>,
    /// No entry before this byte is tried.
    skip_to: u64,
    skip: u64,
}

impl Survey {
    pub(super) fn of(part: &UnreadPart) -> Self {
        Self {
            part: *part,
            damaged: Vec::new(),
            head: None,
            unreadable: None,
            rest: None,
            skip_to: part.from,
            skip: SKIP_BYTES,
        }
    }

    /// Nothing of the part can be told: the disk cannot read where its entries are.
    pub(super) fn without_keys(part: &UnreadPart, error: io::Error) -> Self {
        let unreadable = Unreadable { range: part.from..part.end, error };
        Self { unreadable: Some(unreadable), ..Self::of(part) }
    }

    pub(super) fn table(&self) -> u32 {
        self.part.table
    }

    /// Looks at the next entries, in the order of their positions. Returns whether enough is known: where the part goes on, and what the
    /// disk cannot read before that.
    pub(super) fn check(&mut self, data: &dyn DiskFile, keys: &[KeyRecord]) -> bool {
        for key in keys {
            let at = key.position(self.part.table).offset();
            if at < self.skip_to {
                continue;
            }
            match check_entry(data, self.part.table, key) {
                Ok(Ok(next)) => {
                    if let Some(unreadable) = &mut self.unreadable {
                        unreadable.range.end = at;
                        self.rest = Some((at, next));
                        return true;
                    }
                    self.head.get_or_insert((at, next));
                    if at >= self.part.suspect_to {
                        return true;
                    }
                }
                Ok(Err(damaged)) => self.damaged.push(damaged),
                Err(error) => {
                    let range = at..self.part.end;
                    self.unreadable.get_or_insert(Unreadable { range, error });
                    self.skip_to = at.saturating_add(self.skip);
                    self.skip = self.skip.saturating_mul(2);
                }
            }
        }
        false
    }
}

/// The keys of the entries in this part of a table, in the order of their positions.
pub(super) fn keys_in(key_bytes: &[u8], table: u32, part: Range<u64>) -> Vec<KeyRecord> {
    let is_in = |key: &KeyRecord| part.contains(&key.position(table).offset());
    let mut found: Vec<KeyRecord> = keys(key_bytes).filter(is_in).collect();
    found.sort_unstable_by_key(|key| key.off8);
    found
}

/// The release key of an entry, or the entry as a damaged one. An error if the disk cannot read it.
fn check_entry(data: &dyn DiskFile, table: u32, key: &KeyRecord) -> io::Result<Result<ReleaseKey, Damaged>> {
    let position = key.position(table);
    let read = match read_entry(data, position) {
        Ok(bytes) => Peek::framed(&bytes).and_then(ReleaseKey::of).ok(),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        Err(error) => return Err(error),
    };
    if let Some(read) = read.filter(|read| read.id.hash64() == key.hash) {
        return Ok(Ok(read));
    }
    let id = id_at(data, position)?.filter(|id| id.hash64() == key.hash);
    Ok(Err(Damaged { hash: key.hash, position, lane: key.lane, ready: key.ready, id }))
}

/// The id in the bytes at `position`, damaged or not.
pub(super) fn id_at(data: &dyn DiskFile, position: Position) -> io::Result<Option<MessageId>> {
    let bytes = read_all(data, position.offset(), (entry::FIXED + MessageId::LEN_MAX + 8) as u64)?;
    Ok(Peek::start(&bytes).ok().and_then(|peek| MessageId::parse(peek.id_text()).ok()))
}
