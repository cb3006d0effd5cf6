//! Wide buckets into narrow ones, and the narrowest into memory.

use std::io;

use bytes::Bytes;

use super::{
    super::{
        Limbo, Shared,
        background::is_full,
        disk::DiskFile,
        engine::{Buffer, Engine},
        entry::Peek,
        index::Place,
        lanes::NearKey,
        options::{NEAR_COST, STEP},
        table::{TableKind, read_all},
        wheel::{LEVELS, Route, Slot},
    },
    Moving,
    blocked::unread,
    garbled,
    runs::Source,
};

impl Shared {
    /// Opens the buckets that have come near, from the widest to the narrowest. One that finds no room stands in nobody's way.
    pub(in crate::embedded) fn open_buckets(&self) -> io::Result<()> {
        let mut full = self.unblock()?;
        for level in (1..LEVELS).rev() {
            while let Some(slot) = self.behind(level) {
                match self.flush_bucket(slot) {
                    // What finds no room on disk moves on in memory.
                    Err(error) if !is_full(&error) => return Err(error),
                    _ => {}
                }
                let tables = {
                    let mut engine = self.engine();
                    engine.opened.0[level] = engine.opened.0[level].max(slot.number + 1);
                    let Some(bucket) = engine.buckets.remove(&slot) else { continue };
                    engine.buffered = engine.buffered.saturating_sub(bucket.buffer.bytes.len());
                    engine.splitting = Some(slot.start());
                    engine.splitting_soon = Some(slot.start()).filter(|_| !engine.is_large(&bucket.tables));
                    engine.rearrange(&bucket.buffer);
                    bucket.tables
                };
                let split = self.split_all(tables);
                let mut engine = self.engine();
                (engine.splitting, engine.splitting_soon) = (None, None);
                drop(engine);
                self.note_progress();
                self.moved.notify_waiters();
                full = split?.or(full);
            }
        }
        self.open_narrow()?;
        let mut engine = self.engine();
        let wanted = engine.opened.wanted(engine.now.wall());
        if !engine.buckets.keys().any(|slot| slot.number < wanted.0[usize::from(slot.level)]) {
            engine.opened = wanted;
        }
        full.map_or(Ok(()), Err)
    }

    /// The first bucket of the level that should be open and is not.
    pub(in crate::embedded) fn behind(&self, level: usize) -> Option<Slot> {
        let engine = self.engine();
        let wanted = engine.opened.wanted(engine.now.wall()).0[level];
        let level = level as u8;
        let mut range = engine.buckets.range(Slot { level, number: 0 }..Slot { level, number: wanted });
        range.next().map(|(slot, _)| *slot)
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

    /// The next piece of a table, from `from` on, which moves behind it; `None` at its end. What cannot be read is set aside:
    /// one bad entry must not stop the others of its bucket, nor those of all later ones.
    pub(super) fn next_chunk(&self, table: u32, from: &mut u64) -> io::Result<Option<Chunk>> {
        loop {
            let found = {
                let engine = self.engine();
                let chunk = engine.options.chunk_bytes;
                engine.tables.get(&table).map(|known| (known.data.clone(), known.data_len, chunk))
            };
            let Some((file, len, chunk)) = found.filter(|(_, len, _)| *from < *len) else { return Ok(None) };
            match read_chunk(&*file, table, *from, len, chunk) {
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

    /// Messages have come near: into memory if there is room, else into a run.
    pub(super) fn arrive(
        &self,
        limbo: &Limbo<'_>,
        bytes: &Bytes,
        entries: Vec<(u64, Place, std::ops::Range<usize>)>,
    ) -> io::Result<()> {
        let fits = {
            let engine = self.engine();
            engine.window + bytes.len() + entries.len() * NEAR_COST <= engine.options.window_bytes
        };
        if !fits {
            match self.arrive_on_disk(limbo, bytes, &entries) {
                // No room there either: only the keys stay in memory, and the entries are read when their turn comes.
                Err(error) if is_full(&error) => {}
                arrived => return arrived,
            }
        }
        for some in entries.chunks(STEP) {
            let mut engine = self.engine();
            for (hash, place, range) in some {
                if engine.index.draw_near(*hash, *place)
                    && let Ok(peek) = Peek::framed(&bytes[range.clone()])
                {
                    // A copy: a slice would keep the whole chunk in memory for as long as this one message waits.
                    let data = fits.then(|| Bytes::copy_from_slice(&bytes[range.clone()]));
                    engine.draw_near(*hash, *place, peek, data);
                }
            }
        }
        Ok(())
    }

    fn arrive_on_disk(
        &self,
        limbo: &Limbo<'_>,
        bytes: &Bytes,
        entries: &[(u64, Place, std::ops::Range<usize>)],
    ) -> io::Result<()> {
        let mut moving = Vec::with_capacity(entries.len());
        for some in entries.chunks(STEP) {
            let engine = self.engine();
            for (hash, from, range) in some {
                let alive =
                    engine.index.marks(*hash, *from).is_some_and(|marks| !marks.claimed && !marks.near);
                let data = bytes.slice(range.clone());
                let Ok(peek) = Peek::framed(&data) else { continue };
                if alive && let Ok(key) = NearKey::of(peek) {
                    moving.push(Moving {
                        lane: peek.lane(),
                        key,
                        hash: *hash,
                        from: *from,
                        suspect: peek.is_lost(),
                        data: data.clone(),
                    });
                }
            }
        }
        self.write_run(limbo, &mut moving, Source::Disk)
    }

    /// Moves what is alive in a table to where its time says now: to narrower buckets, or near. Begins where an earlier try
    /// ended: what it moved may still be in memory only, and is not taken again.
    pub(in crate::embedded) fn split(&self, table: u32) -> io::Result<()> {
        let (kind, mut from) = {
            let mut engine = self.engine();
            let Some(known) = engine.tables.get_mut(&table) else { return Ok(()) };
            known.sealed = true;
            (known.kind, known.split_to)
        };
        loop {
            self.make_buffer_room()?;
            let Some((bytes, entries)) = self.next_chunk(table, &mut from)? else { break };
            let near = self.split_chunk(kind, &bytes, entries);
            if !near.is_empty() {
                self.arrive(&self.limbo(), &bytes, near)?;
            }
            self.note_split(table, kind, from);
            // A long split must not make the next second's messages late.
            self.open_narrow()?;
            self.moved.notify_waiters();
        }
        self.note_split(table, kind, from);
        Ok(())
    }

    /// Before more is added to the buffers: what is refused here has not been moved.
    fn make_buffer_room(&self) -> io::Result<()> {
        if !self.engine().wants_flush() {
            return Ok(());
        }
        match self.flush(false) {
            // A little more stays in memory on a full disk, so that what is due comes.
            Err(error) if is_full(&error) && self.engine().may_buffer_more() => Ok(()),
            flushed => flushed,
        }
    }

    /// What lies before `to` was moved. A run is looked at from its start each time: what is near stays in it.
    fn note_split(&self, table: u32, kind: TableKind, to: u64) {
        if kind != TableKind::Run
            && let Some(known) = self.engine().tables.get_mut(&table)
        {
            known.split_to = to;
        }
    }

    /// Puts the entries of a piece into the buffers of their buckets. Gives back those that are near.
    fn split_chunk(&self, kind: TableKind, bytes: &Bytes, entries: Entries) -> Entries {
        let mut near = Vec::new();
        for some in entries.chunks(STEP) {
            let mut engine = self.engine();
            for (hash, place, range) in some {
                let entry = &bytes[range.clone()];
                let Some(marks) = engine.index.marks(*hash, *place) else { continue };
                let Ok(peek) = Peek::framed(entry) else { continue };
                if peek.is_dead() {
                    engine.dead.push(*hash, *place, entry);
                    continue;
                }
                match engine.opened.route(peek.ready()) {
                    Route::Near => near.push((*hash, *place, range.clone())),
                    // Claimed while the clock was ahead, or on its way to its bucket since an earlier try.
                    Route::Bucket(_) if kind == TableKind::Run && (marks.claimed || !marks.near) => {}
                    Route::Bucket(slot) => {
                        if marks.near {
                            engine.withdraw(*hash, *place, peek);
                        }
                        let bucket = engine.buckets.entry(slot).or_default();
                        if marks.near || kind.slot() != Some(slot) {
                            bucket.parts[slot.part(peek.ready())] += 1;
                        }
                        bucket.buffer.push(*hash, *place, entry);
                        engine.buffered += entry.len();
                    }
                }
            }
        }
        near
    }
}

/// Where entries lie: the hash of the id, the place, and which bytes of their piece.
pub(super) type Entries = Vec<(u64, Place, std::ops::Range<usize>)>;
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
            Peek::checked(&bytes[at..]).and_then(|peek| Ok((peek, NearKey::of(peek)?)))
        {
            entries.push((key.id.hash64(), Place::new(table, from + at as u64), at..at + peek.len()));
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
    /// Routes the entries of a bucket's buffer again, after its bucket was opened.
    pub(in crate::embedded) fn rearrange(&mut self, buffer: &Buffer) {
        let mut at = 0;
        for (hash, place) in &buffer.from {
            let Ok(peek) = Peek::framed(&buffer.bytes[at..]) else { return };
            let entry = &buffer.bytes[at..at + peek.len()];
            at += peek.len();
            if self.index.marks(*hash, *place).is_some() {
                let marks = self.arrange(*hash, *place, peek, entry);
                self.index.set_marks(*hash, *place, marks);
            }
        }
    }
}
