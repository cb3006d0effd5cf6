//! Tables whose messages cannot be moved now: the disk has no room for narrower buckets, or cannot read a part of the table.
//!
//! Such a table is in no bucket any more and delays no other one. The move is tried again from where it stopped. Meanwhile, messages in
//! it that come near are loaded one by one.

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use bytes::Bytes;
use duly_core::{Monotonic, Timestamp};

use super::super::{
    SharedEngine,
    background::is_full,
    disk::DiskFile,
    engine::Engine,
    index::Position,
    options::{STEP, UNREAD_AFTER},
    table::{KeyRecord, live_keys, read_all, read_entry},
    wheel::{Opened, Slot},
};

/// Why a table cannot be moved, and until when.
#[derive(Debug, Default)]
struct Blocked {
    /// Nothing in it that is not loaded yet is released before this.
    next: Option<Timestamp>,
    /// When moving it is tried again.
    again: Monotonic,
    /// The error of the disk, if it could not read the table.
    unread: Option<String>,
    /// Messages that have come near and that the disk could not read.
    waiting: u64,
}

/// All such tables, by number.
///
/// Invariant: each of them was taken out of its bucket, so that nothing but this list leads to what is not yet loaded of it.
#[derive(Debug, Default)]
pub(in crate::embedded) struct BlockedTables(BTreeMap<u32, Blocked>);

impl BlockedTables {
    pub(in crate::embedded) fn has(&self, table: u32) -> bool {
        self.0.contains_key(&table)
    }

    /// Nothing in them that is not loaded yet is released before this.
    pub(in crate::embedded) fn next(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|blocked| blocked.next).min()
    }

    /// Whether something in them should be near once `wanted` is opened.
    pub(in crate::embedded) fn is_behind(&self, wanted: &Opened) -> bool {
        self.next().is_some_and(|next| Slot::at(0, next).number < wanted.0[0])
    }

    /// The error of the disk for a table that cannot be read.
    pub(in crate::embedded) fn unread(&self) -> Option<&str> {
        self.0.values().find_map(|blocked| blocked.unread.as_deref())
    }

    /// Messages in them that wait because the disk cannot read them.
    pub(in crate::embedded) fn waiting(&self) -> u64 {
        self.0.values().map(|blocked| blocked.waiting).sum()
    }
}

/// The disk cannot read a table. Unlike a failed write, this concerns only the messages in it.
#[derive(Debug)]
struct Unread(String);

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unread {}

pub(super) fn unread(table: u32, error: &io::Error) -> io::Error {
    io::Error::other(Unread(format!("table-{table} cannot be read: {error}")))
}

pub(super) fn is_unread(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unread>())
}

impl SharedEngine {
    /// Splits tables. One that cannot be split now delays no other; returns the error if the disk is full.
    pub(in crate::embedded) fn split_all(&self, tables: Vec<u32>) -> io::Result<Option<io::Error>> {
        let mut full = None;
        for table in tables {
            match self.split(table) {
                Err(error) if is_full(&error) => {
                    self.block(table, &error)?;
                    full = Some(error);
                }
                Err(error) if is_unread(&error) => self.block(table, &error)?,
                split => {
                    split?;
                    self.engine().tables.blocked_mut().0.remove(&table);
                }
            }
        }
        Ok(full)
    }

    /// Tries again to split blocked tables whose time has come, and loads what has come near in the others.
    pub(super) fn unblock(&self) -> io::Result<Option<io::Error>> {
        let (again, due) = {
            let engine = self.engine();
            let (now, wanted) = (engine.now.mono(), engine.buckets.wanted(engine.now.wall()));
            let near = |time: Timestamp| Slot::at(0, time).number < wanted.0[0];
            let (again, rest): (Vec<_>, Vec<_>) =
                engine.tables.blocked().0.iter().partition(|(_, blocked)| blocked.again <= now);
            let due = rest.into_iter().filter(|(_, blocked)| blocked.next.is_some_and(near));
            let due: Vec<u32> = due.map(|(table, _)| *table).collect();
            (again.into_iter().map(|(table, _)| *table).collect::<Vec<u32>>(), due)
        };
        due.into_iter().try_for_each(|table| self.load_due(table))?;
        self.split_all(again)
    }

    /// The table cannot be moved now.
    pub(super) fn block(&self, table: u32, error: &io::Error) -> io::Result<()> {
        let mut engine = self.engine();
        let is_bucket = engine.tables.slot(table).is_some();
        let is_unread = is_unread(error);
        let now = engine.now.mono();
        let again = if is_unread { now.saturating_add(UNREAD_AFTER) } else { now };
        let wanted = engine.buckets.wanted(engine.now.wall());
        let known = engine.tables.blocked().0.get(&table);
        if is_unread && known.is_none_or(|known| known.unread.is_none()) {
            tracing::error!(%error, "data folder read failed; affected messages wait");
        }
        // An entry that could not be read before may be due: it is read again.
        let next = known.filter(|_| !is_unread).map_or(Some(Timestamp::default()), |known| known.next);
        let unread = is_unread.then(|| error.to_string());
        let next = next.filter(|_| is_bucket);
        let waiting = known.map_or(0, |known| known.waiting);
        engine.tables.blocked_mut().0.insert(table, Blocked { next, again, unread, waiting });
        drop(engine);
        let is_due = next.is_some_and(|next| Slot::at(0, next).number < wanted.0[0]);
        if is_due { self.load_due(table) } else { Ok(()) }
    }

    /// Loads what is near in a blocked table, each message by itself.
    fn load_due(&self, table: u32) -> io::Result<()> {
        let found = {
            let engine = self.engine();
            let number = engine.buckets.wanted(engine.now.wall()).0[0];
            let chunk = engine.options.chunk_bytes as usize;
            engine.tables.get(table).map(|known| {
                let files = (known.data().clone(), known.keys().file().clone(), known.keys().len());
                (files, known.split_to(), Slot { level: 0, number }.start(), chunk)
            })
        };
        let (mut next, mut waiting) = (None, 0);
        if let Some(((data, keys, keys_len), from, end, chunk)) = found
            && let Ok(bytes) = read_all(&*keys, 0, keys_len)
        {
            let ahead = |key: &KeyRecord| Position { file: table, off8: key.off8 }.offset() >= from;
            let mut due = Vec::new();
            for key in live_keys(&bytes).filter(ahead) {
                if key.ready < end {
                    due.push(key);
                } else {
                    next = Some(next.map_or(key.ready, |known: Timestamp| known.min(key.ready)));
                }
            }
            drop(bytes);
            waiting = self.load_keys(table, &data, &due, chunk)?;
        }
        if let Some(blocked) = self.engine().tables.blocked_mut().0.get_mut(&table) {
            (blocked.next, blocked.waiting) = (next, waiting);
        }
        self.note_progress();
        self.moved.notify_waiters();
        Ok(())
    }

    /// Loads the messages of a table with these keys. What cannot be read stays where it is. Returns how many the disk cannot read.
    fn load_keys(
        &self,
        table: u32,
        data: &Arc<dyn DiskFile>,
        due: &[KeyRecord],
        chunk: usize,
    ) -> io::Result<u64> {
        let (mut bytes, mut entries, mut unread) = (Vec::new(), Vec::new(), 0);
        for some in due.chunks(STEP) {
            let waiting: Vec<(u64, Position)> = {
                let engine = self.engine();
                let positions = some.iter().map(|key| (key.hash, Position { file: table, off8: key.off8 }));
                positions.filter(|(hash, position)| engine.waits_far(*hash, *position)).collect()
            };
            for (hash, position) in waiting {
                let read = read_entry(&**data, position);
                self.steps.finish_step();
                match read {
                    Ok(entry) => {
                        entries.push((hash, position, bytes.len()..bytes.len() + entry.len()));
                        bytes.extend_from_slice(&entry);
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        // If its neighbours cannot be read now, it is quarantined when they can.
                        let _ = self.pass_over(table, position.offset());
                    }
                    Err(_) => unread += 1,
                }
                if bytes.len() >= chunk {
                    let bytes = Bytes::from(std::mem::take(&mut bytes));
                    self.load_entries(&self.lock_moves(), &bytes, std::mem::take(&mut entries))?;
                }
            }
        }
        self.load_entries(&self.lock_moves(), &Bytes::from(bytes), entries)?;
        Ok(unread)
    }
}

impl Engine {
    /// Whether the message is at its position, neither near nor claimed.
    fn waits_far(&self, hash: u64, position: Position) -> bool {
        self.index.marks(hash, position).is_some_and(|marks| !marks.near && !marks.claimed)
    }
}
