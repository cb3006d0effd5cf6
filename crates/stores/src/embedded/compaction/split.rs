//! Splits wide buckets into narrower ones.

use std::io;

use bytes::Bytes;

use super::{
    super::{
        SharedEngine,
        background::is_full,
        buffer::Buffer,
        disk::DiskFile,
        engine::Engine,
        entry::Peek,
        index::Position,
        lanes::ReleaseKey,
        options::STEP,
        table::{TableKind, read_all},
        wheel::{LEVELS, Route, Slot},
    },
    blocked::unread,
    garbled,
};

impl SharedEngine {
    /// Opens the buckets that have come near, from the widest to the narrowest. A bucket that finds no room delays no other.
    pub(in crate::embedded) fn open_buckets(&self) -> io::Result<()> {
        let mut full = self.unblock()?;
        for level in (1..LEVELS).rev() {
            while let Some(slot) = self.behind(level) {
                match self.flush_bucket(slot) {
                    // A buffer without room on disk is split from memory.
                    Err(error) if !is_full(&error) => return Err(error),
                    _ => {}
                }
                let tables = {
                    let mut engine = self.engine();
                    let Some((tables, buffer)) = engine.buckets.open(slot) else { continue };
                    let is_large = engine.is_large(&tables);
                    engine.buckets.begin_split(slot.start(), is_large);
                    engine.reroute(&buffer);
                    tables
                };
                let split = self.split_all(tables);
                self.engine().buckets.end_split();
                self.note_progress();
                self.moved.notify_waiters();
                full = split?.or(full);
            }
        }
        self.open_narrow()?;
        let mut engine = self.engine();
        let wanted = engine.buckets.wanted(engine.now.wall());
        engine.buckets.try_open_to(wanted);
        drop(engine);
        full.map_or(Ok(()), Err)
    }

    /// The first bucket of the level that should be open and is not.
    pub(in crate::embedded) fn behind(&self, level: usize) -> Option<Slot> {
        let engine = self.engine();
        let wanted = engine.buckets.wanted(engine.now.wall());
        engine.buckets.first_behind(level, &wanted)
    }

    /// Reads a table piece by piece.
    pub(in crate::embedded) fn each_chunk(
        &self,
        table: u32,
        mut each: impl FnMut(&Bytes, Entries) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut from = 0;
        while let Some((bytes, entries)) = self.next_chunk(table, &mut from)? {
            each(&bytes, entries)?;
        }
        Ok(())
    }

    /// The next piece of a table from `from` on, which is set to the end of the piece; `None` at the end of the table. Damaged entries are
    /// quarantined: one of them must not stop the others of its bucket, or later buckets.
    pub(super) fn next_chunk(&self, table: u32, from: &mut u64) -> io::Result<Option<Chunk>> {
        loop {
            let found = {
                let engine = self.engine();
                let chunk = engine.options.chunk_bytes;
                engine.tables.get(table).map(|known| (known.data().clone(), known.data_len(), chunk))
            };
            let Some((file, len, chunk)) = found.filter(|(_, len, _)| *from < *len) else { return Ok(None) };
            let read = read_chunk(&*file, table, *from, len, chunk);
            self.steps.finish_step();
            match read {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    *from = self.pass_over(table, *from).map_err(|error| unread(table, &error))?;
                }
                Err(error) => return Err(unread(table, &error)),
                Ok((bytes, entries)) => {
                    *from += entries.last().map_or(0, |(_, _, range)| range.end as u64);
                    return Ok(Some((bytes, entries)));
                }
            }
        }
    }

    /// Moves what is alive in a table to where its time says now: to narrower buckets, or into the hot window. Goes on where an earlier
    /// try stopped: what that one moved may be in memory only, and must not be moved twice.
    pub(in crate::embedded) fn split(&self, table: u32) -> io::Result<()> {
        let (kind, mut from) = {
            let mut engine = self.engine();
            let Some(known) = engine.tables.get_mut(table) else { return Ok(()) };
            known.seal();
            (known.kind(), known.split_to())
        };
        loop {
            self.make_buffer_room()?;
            let Some((bytes, entries)) = self.next_chunk(table, &mut from)? else { break };
            let near = self.split_chunk(kind, &bytes, entries);
            if !near.is_empty() {
                self.load_entries(&self.lock_moves(), &bytes, near)?;
            }
            self.note_split(table, kind, from);
            // A long split must not make the next second's messages late.
            self.open_narrow()?;
            self.moved.notify_waiters();
        }
        self.note_split(table, kind, from);
        Ok(())
    }

    /// Makes room in the buffers before entries are moved there. After an error nothing has been moved.
    fn make_buffer_room(&self) -> io::Result<()> {
        if !self.engine().wants_flush() {
            return Ok(());
        }
        match self.flush(false) {
            // On a full disk a little more stays in memory, so that due messages are loaded.
            Err(error) if is_full(&error) && self.engine().may_buffer_more() => Ok(()),
            flushed => flushed,
        }
    }

    /// Entries before `to` were moved. A run is read from its start each time, because near entries stay in it.
    fn note_split(&self, table: u32, kind: TableKind, to: u64) {
        if kind != TableKind::Run
            && let Some(known) = self.engine().tables.get_mut(table)
        {
            known.note_split(to);
        }
    }

    /// Puts the entries of a piece into the buffers of their buckets. Returns those that are near.
    fn split_chunk(&self, kind: TableKind, bytes: &Bytes, entries: Entries) -> Entries {
        let mut near = Vec::new();
        for some in entries.chunks(STEP) {
            let mut engine = self.engine();
            for (hash, position, range) in some {
                let entry = &bytes[range.clone()];
                let Some(marks) = engine.index.marks(*hash, *position) else { continue };
                let Ok(peek) = Peek::framed(entry) else { continue };
                if peek.is_dead() {
                    engine.dead_buffer.push(*hash, *position, entry);
                    continue;
                }
                match engine.buckets.route(peek.ready()) {
                    Route::Near => near.push((*hash, *position, range.clone())),
                    // It was claimed while the clock was ahead, or is on its way to its bucket since an earlier try.
                    Route::Bucket(_) if kind == TableKind::Run && (marks.claimed || !marks.near) => {}
                    Route::Bucket(slot) => {
                        if marks.near {
                            engine.withdraw(*hash, *position, peek);
                        }
                        let is_counted = !marks.near && kind.slot() == Some(slot);
                        engine.buckets.push(slot, *hash, *position, peek, is_counted);
                    }
                }
            }
        }
        near
    }
}

/// Where entries lie: the hash of the id, the position, and which bytes of their piece.
pub(super) type Entries = Vec<(u64, Position, std::ops::Range<usize>)>;
pub(super) type Chunk = (Bytes, Entries);

/// Reads whole entries of a table from `from` on: about `chunk` bytes, at least one entry.
pub(super) fn read_chunk(
    file: &dyn DiskFile,
    table: u32,
    from: u64,
    len: u64,
    chunk: u64,
) -> io::Result<Chunk> {
    let mut want = chunk.min(len - from);
    loop {
        let bytes = Bytes::from(read_all(file, from, want)?);
        let mut entries = Vec::new();
        let mut at = 0;
        while let Ok((peek, key)) =
            Peek::checked(&bytes[at..]).and_then(|peek| Ok((peek, ReleaseKey::of(peek)?)))
        {
            entries.push((key.id.hash64(), Position::new(table, from + at as u64), at..at + peek.len()));
            at += peek.len();
        }
        if !entries.is_empty() {
            return Ok((bytes, entries));
        }
        let need = Peek::sure_length(&bytes).map_err(|_| garbled(table, from))? as u64;
        if need <= want || need > len - from {
            return Err(garbled(table, from));
        }
        want = need;
    }
}

impl Engine {
    /// Routes the entries of a buffer again, after its bucket was opened.
    pub(in crate::embedded) fn reroute(&mut self, buffer: &Buffer) {
        for (hash, position, peek) in buffer.entries() {
            if self.index.marks(hash, position).is_some() {
                let marks = self.place_pending(hash, position, peek);
                self.index.set_marks(hash, position, marks);
            }
        }
    }
}
