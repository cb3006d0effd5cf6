//! A table: a file of entries with a file of keys beside it, so that opening the store does not read bodies.
//!
//! Three kinds share the shape: buckets (in the order of arrival), runs (by lane and release order: what was due and
//! nobody took) and dead letters. The keys file holds 24-byte records: a key, or up to five entries that are gone. The
//! highest bit of a key's time says that it is the due time, too, so that lists need not read the entry to know it.

use std::{io, sync::Arc};

use duly_core::Timestamp;

use super::{
    disk::DiskFile,
    entry::{Garbled, Peek},
    index::{PLACE_END, Place},
    wheel::Slot,
};

/// Bytes of one record of the keys file.
pub(super) const KEY_BYTES: usize = 24;
/// The lane number that marks a record of entries that are gone.
const GONE: u32 = u32::MAX;
/// How many of them fit in one record.
const GONE_PER_RECORD: usize = 5;
/// In the time of a key: the message was due then, and did not only wait until then for another try.
const ON_TIME: u64 = 1 << 63;

/// What a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum TableKind {
    /// What comes due in a span of time.
    Bucket { level: u8, number: u64 },
    /// What is near or overdue, by lane.
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
    /// Whether that is its due time; if not, it was due before that.
    pub(super) on_time: bool,
    pub(super) off8: u32,
    pub(super) lane: u32,
}

impl KeyRecord {
    /// The key of an entry that lies at `off8` of its table.
    pub(super) fn of(peek: Peek<'_>, hash: u64, off8: u32) -> Self {
        Self { hash, ready: peek.ready(), on_time: peek.ready() == peek.due(), off8, lane: peek.lane() }
    }

    fn write(self, out: &mut Vec<u8>) {
        let ready = self.ready.as_millis() | if self.on_time { ON_TIME } else { 0 };
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&ready.to_le_bytes());
        out.extend_from_slice(&self.off8.to_le_bytes());
        out.extend_from_slice(&self.lane.to_le_bytes());
    }
}

/// One open table.
pub(super) struct Table {
    pub(super) number: u32,
    pub(super) kind: TableKind,
    pub(super) data: Arc<dyn DiskFile>,
    pub(super) keys: Arc<dyn DiskFile>,
    pub(super) data_len: u64,
    pub(super) keys_len: u64,
    /// The checksum of the keys file up to there.
    pub(super) keys_crc: u32,
    /// Whether each entry here was due in the table's span: none waited for another try.
    pub(super) all_on_time: bool,
    /// Entries that are alive here.
    pub(super) live: u64,
    /// Their bytes.
    pub(super) live_bytes: u64,
    /// Gone since the keys file was last written.
    pub(super) gone: Vec<u32>,
    /// Written to since the last sync.
    pub(super) dirty: bool,
    /// How many of `gone` there were at the last look: a table that still changes is not rewritten yet.
    pub(super) gone_seen: u64,
    /// Ever gone, on disk or not.
    pub(super) gone_total: u64,
    /// Nothing more is added to it.
    pub(super) sealed: bool,
    /// What lies before this byte was moved on, or is on its way: it is not moved again.
    pub(super) split_to: u64,
    /// The background thread is writing to it: it stays, even with nothing alive.
    pub(super) busy: bool,
    /// Something in it cannot be read, and so cannot be moved: rewriting it would not empty it.
    pub(super) has_damage: bool,
}

impl Table {
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
            keys,
            data_len: 0,
            keys_len: 0,
            keys_crc: 0,
            all_on_time: true,
            live: 0,
            live_bytes: 0,
            gone: Vec::new(),
            dirty: false,
            gone_seen: 0,
            gone_total: 0,
            sealed: false,
            split_to: 0,
            busy: false,
            has_damage: false,
        }
    }

    /// The entry at `place` is no longer alive here.
    pub(super) fn forget(&mut self, off8: u32, bytes: u64) {
        self.live = self.live.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.gone_total += 1;
        self.gone.push(off8);
    }

    /// The keys file was added to.
    pub(super) fn added_keys(&mut self, bytes: &[u8]) {
        self.all_on_time &= keys(bytes).all(|key| key.on_time);
        self.keys_len += bytes.len() as u64;
        self.keys_crc = crc32c::crc32c_append(self.keys_crc, bytes);
    }

    /// Bytes that belong to nothing alive.
    pub(super) fn waste(&self) -> u64 {
        self.data_len.saturating_sub(self.live_bytes)
    }
}

/// Refuses a table that places could not name: one that wrapped around would name another entry.
pub(super) fn check_len(number: u32, len: u64) -> io::Result<()> {
    if len <= PLACE_END {
        return Ok(());
    }
    Err(io::Error::other(format!("table {number} would have {len} bytes, and {PLACE_END} is the most")))
}

/// Appends `gone` to the bytes of a keys file.
pub(super) fn write_gone(gone: &[u32], out: &mut Vec<u8>) {
    for some in gone.chunks(GONE_PER_RECORD) {
        let start = out.len();
        for off8 in some {
            out.extend_from_slice(&(off8 + 1).to_le_bytes());
        }
        out.resize(start + 4 * GONE_PER_RECORD, 0);
        out.extend_from_slice(&GONE.to_le_bytes());
    }
}

/// Appends a key to the bytes of a keys file.
pub(super) fn write_key(key: KeyRecord, out: &mut Vec<u8>) {
    key.write(out);
}

/// The keys that are alive in the bytes of a keys file.
pub(super) fn live_keys(bytes: &[u8]) -> impl Iterator<Item = KeyRecord> + '_ {
    let mut gone: Vec<u32> = Vec::new();
    for record in bytes.chunks_exact(KEY_BYTES) {
        if word(record, 20) == GONE {
            gone.extend(
                (0..GONE_PER_RECORD).map(|i| word(record, 4 * i)).filter(|off| *off != 0).map(|off| off - 1),
            );
        }
    }
    gone.sort_unstable();
    keys(bytes).filter(move |key| gone.is_empty() || gone.binary_search(&key.off8).is_err())
}

/// The keys in the bytes of a keys file, of what is gone, too.
pub(super) fn keys(bytes: &[u8]) -> impl Iterator<Item = KeyRecord> + '_ {
    bytes.chunks_exact(KEY_BYTES).filter(|record| word(record, 20) != GONE).map(key_of)
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

/// How much of an entry is read at first: most are no longer.
const FIRST_READ: usize = 1024;

/// Reads the entry at `place` of its file, checksum verified.
pub(super) fn read_entry(file: &dyn DiskFile, place: Place) -> io::Result<Vec<u8>> {
    let garbled = |_: Garbled| io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = vec![0; FIRST_READ];
    let n = file.read_at(&mut bytes, place.offset())?;
    let len = Peek::length(&bytes[..n]).map_err(garbled)?;
    if len > n {
        // A length that the file does not back is garbled, and must not be believed with an allocation.
        if place.offset() + len as u64 > file.len()? {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        bytes.resize(len, 0);
        let more = file.read_at(&mut bytes[n..], place.offset() + n as u64)?;
        if n + more < len {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
    }
    bytes.truncate(len);
    Peek::checked(&bytes).map_err(garbled)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_places_cannot_name_is_refused() {
        assert!(check_len(7, PLACE_END).is_ok());
        let error = check_len(7, PLACE_END + 1).unwrap_err();
        assert!(error.to_string().contains("table 7"), "{error}");
        let mut gone = Vec::new();
        let last = Place::new(7, PLACE_END - 8);
        write_gone(&[last.off8], &mut gone);
        assert_eq!(word(&gone, 0), u32::MAX, "the last place can be marked as gone");
    }
}
