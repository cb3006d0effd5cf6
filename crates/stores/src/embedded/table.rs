//! A table: a file of entries with a file of keys beside it, so that opening the store does not read bodies.
//!
//! There are three kinds: buckets (in the order of arrival), runs (sorted by lane and release: the backlog that nobody claimed)
//! and dead letters. The keys file holds 24-byte records: a key, or a tombstone of up to five entries. The highest bit of a
//! key's time says that this is the due time as well, so that lists know it without reading the entry.

use std::{io, sync::Arc};

use duly_core::Timestamp;

use super::{
    disk::DiskFile,
    entry::{Garbled, Peek},
    index::{POSITION_END, Position},
    wheel::Slot,
};

/// Bytes of one record of the keys file.
pub(super) const KEY_BYTES: usize = 24;
/// The lane number that marks a tombstone.
const TOMBSTONE: u32 = u32::MAX;
/// How many of them fit in one record.
const TOMBSTONES_PER_RECORD: usize = 5;
/// In the time of a key: it is the due time of the message, not the time of a later attempt.
const ON_TIME: u64 = 1 << 63;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum TableKind {
    /// Messages due within a span of time.
    Bucket { level: u8, number: u64 },
    /// Near and overdue messages, by lane.
    Run,
    /// Dead letters.
    Dead,
}

impl TableKind {
    pub(super) fn bucket(slot: Slot) -> Self {
        Self::Bucket { level: slot.level, number: slot.number }
    }

    pub(super) fn slot(self) -> Option<Slot> {
        match self {
            Self::Bucket { level, number } => Some(Slot { level, number }),
            _ => None,
        }
    }
}

/// The key of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyRecord {
    pub(super) hash: u64,
    pub(super) ready: Timestamp,
    /// Whether `ready` is the due time. If not, the message was due before.
    pub(super) on_time: bool,
    pub(super) off8: u32,
    pub(super) lane: u32,
}

impl KeyRecord {
    /// The key of an entry that lies at `off8` of its table.
    pub(super) fn of(peek: Peek<'_>, hash: u64, off8: u32) -> Self {
        Self { hash, ready: peek.ready(), on_time: peek.ready() == peek.due(), off8, lane: peek.lane() }
    }

    /// Where the entry lies, in the table of the key.
    pub(super) fn position(&self, table: u32) -> Position {
        Position { file: table, off8: self.off8 }
    }

    fn write(self, out: &mut Vec<u8>) {
        let ready = self.ready.as_millis() | if self.on_time { ON_TIME } else { 0 };
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&ready.to_le_bytes());
        out.extend_from_slice(&self.off8.to_le_bytes());
        out.extend_from_slice(&self.lane.to_le_bytes());
    }
}

/// The file of keys of a table.
///
/// Invariant: `len` and `crc` describe the same bytes, those that the next manifest names. What lies behind them does not count.
pub(super) struct KeysFile {
    file: Arc<dyn DiskFile>,
    len: u64,
    crc: u32,
    /// Whether each entry was due in the span of its table: none waited for another attempt.
    all_on_time: bool,
}

impl KeysFile {
    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    pub(super) fn all_on_time(&self) -> bool {
        self.all_on_time
    }

    /// These bytes were added to the file, or are going to be.
    fn add(&mut self, bytes: &[u8]) {
        self.all_on_time &= keys(bytes).all(|key| key.on_time);
        self.len += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
    }
}

/// Entries of a table that are not alive any more.
#[derive(Default)]
struct Tombstones {
    /// Not yet written to the keys file.
    unwritten: Vec<u32>,
    /// All that were ever added, on disk or not.
    total: u64,
    /// How many there were at the last [check](Table::is_quiet).
    seen: u64,
}

/// Tombstones that are to be written to a keys file, and how the file was before.
pub(super) struct TombstoneRecords {
    pub(super) table: u32,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: Vec<u8>,
    /// Where they are written.
    pub(super) at: u64,
    crc_before: u32,
    entries: Vec<u32>,
}

/// One open table.
///
/// Invariants:
/// - `live` and `live_bytes` count the entries whose position in the index is in this table.
/// - An entry that ended is in `tombstones.unwritten` until its record is part of the keys file that the next manifest names.
/// - While the table is `busy`, the background thread writes to it, and nobody else adds to it or retires it.
pub(super) struct Table {
    number: u32,
    kind: TableKind,
    data: Arc<dyn DiskFile>,
    data_len: u64,
    keys: KeysFile,
    live: u64,
    live_bytes: u64,
    tombstones: Tombstones,
    /// Written to since the last sync.
    dirty: bool,
    /// Nothing more is added to it.
    sealed: bool,
    /// Entries before this byte were moved, or are being moved: they are not moved again.
    split_to: u64,
    busy: bool,
    /// Something in it cannot be read, and so cannot be moved: rewriting it would not empty it.
    has_damage: bool,
}

impl Table {
    /// A table without entries that the background thread is about to write.
    pub(super) fn new(
        number: u32,
        kind: TableKind,
        data: Arc<dyn DiskFile>,
        keys: Arc<dyn DiskFile>,
    ) -> Self {
        Self {
            number,
            kind,
            data,
            data_len: 0,
            keys: KeysFile { file: keys, len: 0, crc: 0, all_on_time: true },
            live: 0,
            live_bytes: 0,
            tombstones: Tombstones::default(),
            dirty: false,
            sealed: false,
            split_to: 0,
            busy: true,
            has_damage: false,
        }
    }

    /// A table from disk: its file of entries and how long it is, its keys file and the bytes of that, and how many of its entries
    /// are alive.
    pub(super) fn load(
        number: u32,
        kind: TableKind,
        (data, data_len): (Arc<dyn DiskFile>, u64),
        (keys, key_bytes): (Arc<dyn DiskFile>, &[u8]),
        live: u64,
    ) -> Self {
        let mut table = Self { data_len, busy: false, ..Self::new(number, kind, data, keys) };
        table.keys.add(key_bytes);
        table.live = live;
        // Entry sizes are not in the keys: waste is estimated until the table is rewritten.
        let all = (key_bytes.len() / KEY_BYTES) as u64;
        table.live_bytes = data_len * live / all.max(1);
        table
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn kind(&self) -> TableKind {
        self.kind
    }

    /// The file of entries.
    pub(super) fn data(&self) -> &Arc<dyn DiskFile> {
        &self.data
    }

    pub(super) fn data_len(&self) -> u64 {
        self.data_len
    }

    pub(super) fn keys(&self) -> &KeysFile {
        &self.keys
    }

    /// Entries that are alive here.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Their bytes.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// Entries before this byte were moved.
    pub(super) fn split_to(&self) -> u64 {
        self.split_to
    }

    /// Bytes that belong to nothing alive.
    pub(super) fn waste(&self) -> u64 {
        self.data_len.saturating_sub(self.live_bytes)
    }

    /// An entry of so many bytes is alive here.
    pub(super) fn add_live(&mut self, bytes: u64) {
        self.live += 1;
        self.live_bytes += bytes;
    }

    /// The entry at `off8` is no longer alive here.
    pub(super) fn forget(&mut self, off8: u32, bytes: u64) {
        self.live = self.live.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.add_tombstone(off8);
    }

    /// The entry at `off8` was written and never came alive here.
    pub(super) fn add_tombstone(&mut self, off8: u32) {
        self.tombstones.total += 1;
        self.tombstones.unwritten.push(off8);
    }

    /// Whether no entry has ended since the last check: a table that still changes is not rewritten yet.
    pub(super) fn is_quiet(&mut self) -> bool {
        std::mem::replace(&mut self.tombstones.seen, self.tombstones.total) == self.tombstones.total
    }

    /// The background thread begins to write to it: it stays, even with nothing alive.
    pub(super) fn begin_write(&mut self) {
        self.busy = true;
    }

    /// Records that these keys and this many bytes of entries were written.
    pub(super) fn finish_write(&mut self, data: u64, keys: &[u8]) {
        self.data_len += data;
        self.keys.add(keys);
        self.dirty = true;
        self.busy = false;
    }

    /// The write failed: what it wrote does not count.
    pub(super) fn abort_write(&mut self) {
        self.busy = false;
    }

    /// Whether it was written to since the last sync. It is being synced now.
    pub(super) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn seal(&mut self) {
        self.sealed = true;
    }

    pub(super) fn note_split(&mut self, to: u64) {
        self.split_to = to;
    }

    pub(super) fn set_damage(&mut self, has_damage: bool) {
        self.has_damage = has_damage;
    }

    /// The tombstones that the keys file does not have; `None` if it has them all. They count as written: if they cannot
    /// be, [`restore_tombstones`](Self::restore_tombstones) takes that back.
    pub(super) fn take_tombstones(&mut self) -> Option<TombstoneRecords> {
        if self.tombstones.unwritten.is_empty() {
            return None;
        }
        let entries = std::mem::take(&mut self.tombstones.unwritten);
        let mut bytes = Vec::with_capacity(entries.len() / TOMBSTONES_PER_RECORD * KEY_BYTES + KEY_BYTES);
        write_tombstones(&entries, &mut bytes);
        let (table, file) = (self.number, self.keys.file.clone());
        let (at, crc_before) = (self.keys.len, self.keys.crc);
        self.keys.add(&bytes);
        Some(TombstoneRecords { table, file, bytes, at, crc_before, entries })
    }

    /// The records could not be written.
    pub(super) fn restore_tombstones(&mut self, records: TombstoneRecords) {
        (self.keys.len, self.keys.crc) = (records.at, records.crc_before);
        self.tombstones.unwritten.extend(records.entries);
    }
}

/// Refuses a table that positions could not name: one that wrapped around would name another entry.
pub(super) fn check_len(number: u32, len: u64) -> io::Result<()> {
    if len <= POSITION_END {
        return Ok(());
    }
    Err(io::Error::other(format!("table {number} would have {len} bytes, and {POSITION_END} is the most")))
}

/// Appends tombstones of these entries to the bytes of a keys file.
fn write_tombstones(entries: &[u32], out: &mut Vec<u8>) {
    for some in entries.chunks(TOMBSTONES_PER_RECORD) {
        let start = out.len();
        for off8 in some {
            out.extend_from_slice(&(off8 + 1).to_le_bytes());
        }
        out.resize(start + 4 * TOMBSTONES_PER_RECORD, 0);
        out.extend_from_slice(&TOMBSTONE.to_le_bytes());
    }
}

/// Appends a key to the bytes of a keys file.
pub(super) fn write_key(key: KeyRecord, out: &mut Vec<u8>) {
    key.write(out);
}

/// The keys that are alive in the bytes of a keys file.
pub(super) fn live_keys(bytes: &[u8]) -> impl Iterator<Item = KeyRecord> + '_ {
    let mut tombstones: Vec<u32> = Vec::new();
    for record in bytes.chunks_exact(KEY_BYTES) {
        if word(record, 20) == TOMBSTONE {
            tombstones.extend(
                (0..TOMBSTONES_PER_RECORD)
                    .map(|i| word(record, 4 * i))
                    .filter(|off| *off != 0)
                    .map(|off| off - 1),
            );
        }
    }
    tombstones.sort_unstable();
    keys(bytes).filter(move |key| tombstones.is_empty() || tombstones.binary_search(&key.off8).is_err())
}

/// All keys in the bytes of a keys file, also those that have a tombstone.
pub(super) fn keys(bytes: &[u8]) -> impl Iterator<Item = KeyRecord> + '_ {
    bytes.chunks_exact(KEY_BYTES).filter(|record| word(record, 20) != TOMBSTONE).map(key_of)
}

fn word(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

fn key_of(record: &[u8]) -> KeyRecord {
    let long = |at: usize| u64::from(word(record, at)) | u64::from(word(record, at + 4)) << 32;
    KeyRecord {
        hash: long(0),
        ready: Timestamp::from_millis(long(8) & !ON_TIME),
        on_time: long(8) & ON_TIME != 0,
        off8: word(record, 16),
        lane: word(record, 20),
    }
}

/// Reads `len` bytes of a file, or fewer if it ends before.
pub(super) fn read_all(file: &dyn DiskFile, from: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let n = file.read_at(&mut bytes, from)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Bytes of an entry that are read at first. Most entries are not longer.
const FIRST_READ: usize = 1024;

/// Reads the entry at `position` of its file, checksum verified.
pub(super) fn read_entry(file: &dyn DiskFile, position: Position) -> io::Result<Vec<u8>> {
    let garbled = |_: Garbled| io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = vec![0; FIRST_READ];
    let n = file.read_at(&mut bytes, position.offset())?;
    let len = Peek::length(&bytes[..n]).map_err(garbled)?;
    if len > n {
        // A length beyond the end of the file is damage. Nothing is allocated for it.
        if position.offset() + len as u64 > file.len()? {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        bytes.resize(len, 0);
        let more = file.read_at(&mut bytes[n..], position.offset() + n as u64)?;
        if n + more < len {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
    }
    bytes.truncate(len);
    Peek::checked(&bytes).map_err(garbled)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
