//! Loads the narrowest buckets into the hot window. A large bucket is loaded a piece at a time, and other buckets in between: it must
//! not make the next second's messages late.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use duly_core::Timestamp;

use super::{
    super::{
        MoveGuard, SharedEngine,
        background::is_full,
        buffer::Buffer,
        engine::Engine,
        entry::Peek,
        index::Position,
        lanes::ReleaseKey,
        options::{NEAR_COST, STEP},
    },
    RunEntry,
    blocked::is_unread,
    garbled,
    runs::Source,
    split::Entries,
};

/// A bucket that is being loaded.
struct BucketLoad {
    start: Timestamp,
    tables: VecDeque<u32>,
    /// Where to go on in the first table.
    from: u64,
}

impl SharedEngine {
    /// Loads the narrow buckets that have come near.
    pub(in crate::embedded) fn open_narrow(&self) -> io::Result<()> {
        let mut large = VecDeque::new();
        let opened = self.open_narrow_ones(&mut large);
        self.engine().buckets.end_load(None);
        self.moved.notify_waiters();
        opened
    }

    fn open_narrow_ones(&self, large: &mut VecDeque<BucketLoad>) -> io::Result<()> {
        loop {
            while self.open_first(large)? {}
            // One piece of a large bucket, then the buckets that have come near meanwhile.
            let Some(mut load) = large.pop_front() else { return Ok(()) };
            if self.load_piece(&mut load)? {
                large.push_back(load);
            }
            self.engine().buckets.end_load(first_start(large));
            self.note_progress();
            self.moved.notify_waiters();
        }
    }

    /// Opens the first narrow bucket that has come near and loads all of it, or if it is large only its buffer.
    fn open_first(&self, large: &mut VecDeque<BucketLoad>) -> io::Result<bool> {
        let Some(slot) = self.behind(0) else { return Ok(false) };
        let start = slot.start();
        let moves = self.lock_moves();
        let (tables, buffer, is_large) = {
            let mut engine = self.engine();
            let Some((tables, buffer)) = engine.buckets.open(slot) else { return Ok(true) };
            let is_large = engine.is_large(&tables);
            engine.buckets.begin_load(start, is_large);
            (tables, buffer, is_large)
        };
        self.load_buffer(&moves, buffer)?;
        drop(moves);
        let mut load = BucketLoad { start, tables: tables.into(), from: 0 };
        if is_large {
            large.push_back(load);
        } else {
            while self.load_piece(&mut load)? {}
        }
        self.engine().buckets.end_load(first_start(large));
        self.note_progress();
        self.moved.notify_waiters();
        Ok(true)
    }

    /// Loads the next piece of a bucket; `false` if there was none.
    fn load_piece(&self, load: &mut BucketLoad) -> io::Result<bool> {
        while let Some(table) = load.tables.front() {
            match self.next_chunk(*table, &mut load.from) {
                Ok(Some((bytes, entries))) => {
                    self.load_entries(&self.lock_moves(), &bytes, entries)?;
                    return Ok(true);
                }
                Err(error) if is_unread(&error) => self.block(*table, &error)?,
                done => drop(done?),
            }
            load.tables.pop_front();
            load.from = 0;
        }
        Ok(false)
    }

    /// Loads messages that have come near: into the hot window if there is room, else into a run.
    pub(super) fn load_entries(
        &self,
        moves: &MoveGuard<'_>,
        bytes: &Bytes,
        entries: Entries,
    ) -> io::Result<()> {
        let fits = {
            let engine = self.engine();
            engine.lanes.hot_bytes() + bytes.len() + entries.len() * NEAR_COST <= engine.options.window_bytes
        };
        if !fits {
            match self.load_to_run(moves, bytes, &entries) {
                // There is no room on disk, either: only the keys stay in memory, and the entries are read when their turn comes.
                Err(error) if is_full(&error) => {}
                loaded => return loaded,
            }
        }
        for some in entries.chunks(STEP) {
            let mut engine = self.engine();
            for (hash, position, range) in some {
                if engine.index.mark_near(*hash, *position)
                    && let Ok(peek) = Peek::framed(&bytes[range.clone()])
                {
                    // A copy: a slice would keep the whole chunk in memory while this one message waits.
                    let data = fits.then(|| Bytes::copy_from_slice(&bytes[range.clone()]));
                    engine.place_near(*hash, *position, peek, data);
                }
            }
        }
        Ok(())
    }

    fn load_to_run(
        &self,
        moves: &MoveGuard<'_>,
        bytes: &Bytes,
        entries: &[(u64, Position, std::ops::Range<usize>)],
    ) -> io::Result<()> {
        let mut moving = Vec::with_capacity(entries.len());
        for some in entries.chunks(STEP) {
            let engine = self.engine();
            for (hash, from, range) in some {
                let alive =
                    engine.index.marks(*hash, *from).is_some_and(|marks| !marks.claimed && !marks.near);
                let data = bytes.slice(range.clone());
                let Ok(peek) = Peek::framed(&data) else { continue };
                if alive && let Ok(key) = ReleaseKey::of(peek) {
                    moving.push(RunEntry {
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
        self.write_run(moves, &mut moving, Source::Disk)
    }

    fn load_buffer(&self, moves: &MoveGuard<'_>, buffer: Buffer) -> io::Result<()> {
        let (bytes, positions) = buffer.into_parts();
        let bytes = Bytes::from(bytes);
        let mut at = 0;
        let mut entries = Vec::with_capacity(positions.len());
        for (hash, from) in positions {
            let Ok(peek) = Peek::framed(&bytes[at..]) else { return Err(garbled(from.file, from.offset())) };
            entries.push((hash, from, at..at + peek.len()));
            at += peek.len();
        }
        self.load_entries(moves, &bytes, entries)
    }
}

fn first_start(loads: &VecDeque<BucketLoad>) -> Option<Timestamp> {
    loads.iter().map(|load| load.start).min()
}

impl Engine {
    /// Whether the tables of a bucket are more than is read at once: then claims do not wait for it.
    pub(super) fn is_large(&self, tables: &[u32]) -> bool {
        let len = |number: &u32| self.tables.get(*number).map_or(0, |table| table.data_len());
        tables.iter().map(len).sum::<u64>() > self.options.chunk_bytes
    }
}
