//! Checkpoints: make durable what was moved, say so in the manifest, and let go of what is not needed any more.

use std::{
    io,
    sync::{Arc, PoisonError},
    thread::Builder,
};

use duly_core::{
    Lane,
    store::{Holder, StoreError, StoreErrorKind},
};

use super::{
    Shared,
    disk::{DiskFile, beyond_repair},
    ended::Slice,
    engine::Engine,
    in_flight::{ClaimLog, Note},
    lanes::LaneState,
    manifest::{FORMAT, LaneLine, Manifest, SliceLine, TableLine},
    table::{KEY_BYTES, write_gone},
};

/// A keys file to be added to, and how it was.
struct Gone {
    table: u32,
    file: Arc<dyn DiskFile>,
    bytes: Vec<u8>,
    entries: Vec<u32>,
    keys_len: u64,
    keys_crc: u32,
}

/// What one checkpoint lets go of.
struct Snapshot {
    manifest: Manifest,
    gone: Vec<Gone>,
    buried: Vec<u32>,
    slices: Vec<Slice>,
    old_claims: Vec<u32>,
    /// Lanes that it does not name any more.
    forgotten: Vec<Lane>,
    /// Frames before this one must be durable first.
    next_frame: u64,
}

impl Shared {
    /// Makes a checkpoint: the journal before it is not needed any more.
    pub(super) fn checkpoint(&self) -> io::Result<()> {
        let (segment, added) = {
            let mut engine = self.engine();
            (engine.journal.current(), engine.journal.cut())
        };
        // What is read back from the journal must be in it: a segment used again holds old entries until then.
        if !self.wait_durable(added) {
            return Ok(());
        }
        self.flush(true)?;
        self.flush_dead()?;
        self.relocate(segment)?;
        self.write_slices()?;
        self.sync_dirty()?;
        let claims = self.engine().file_number();
        let claims_path = self.dir.join(format!("claims-{claims}"));
        let claims_file = self.disk.open(&claims_path)?;
        let room = ClaimLog::room(self.engine().options.segment_bytes);
        claims_file.allocate(room).inspect_err(|_| {
            // Half laid down it would only hold the room that is missing.
            let _ = self.disk.remove(&claims_path);
        })?;
        let mut snapshot = {
            let mut engine = self.engine();
            // Under the lock, so that no claim falls between the two files.
            self.claims.switch(claims_file, &notes(&engine))?;
            let snapshot = take_snapshot(&mut engine, segment, claims);
            engine.claim_files.push(claims);
            snapshot
        };
        self.forget_numbers(&snapshot.forgotten);
        match self.write_snapshot(&mut snapshot) {
            Ok(true) => self.let_go(snapshot),
            Ok(false) => Ok(()),
            Err(error) => {
                self.engine().take_back(snapshot);
                Err(error)
            }
        }
    }

    /// Whoever took a number from here before is given another when its message is accepted.
    fn forget_numbers(&self, lanes: &[Lane]) {
        if lanes.is_empty() {
            return;
        }
        let mut numbers = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().for_each(|lane| {
            numbers.remove(lane);
        });
    }

    /// Makes the snapshot durable; `false` if the store stopped first.
    fn write_snapshot(&self, snapshot: &mut Snapshot) -> io::Result<bool> {
        for gone in &snapshot.gone {
            gone.file.write_at(&gone.bytes, gone.keys_len)?;
            gone.file.sync().map_err(beyond_repair)?;
        }
        if !self.wait_durable(snapshot.next_frame) {
            return Ok(false);
        }
        super::manifest::write(&*self.disk, &self.dir, &snapshot.manifest)?;
        Ok(true)
    }

    /// Waits until every frame before `next` is durable; `false` if the store stopped first.
    fn wait_durable(&self, next: u64) -> bool {
        let mut engine = self.engine();
        while engine.journal.durable + 1 < next {
            if engine.stop {
                return false;
            }
            engine.background_waits = true;
            self.wake(&mut engine);
            engine = self.background.wait(engine).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Writes the ends of messages to their slices.
    pub(super) fn write_slices(&self) -> io::Result<()> {
        loop {
            let found = {
                let mut engine = self.engine();
                engine.ended.slices.iter_mut().find(|slice| !slice.buffer.is_empty()).map(|slice| {
                    // A copy: until the bytes are in the file, they are looked for in the buffer.
                    (slice.number, slice.file.clone(), slice.file_len, slice.buffer.clone())
                })
            };
            let Some((number, file, at, bytes)) = found else { return Ok(()) };
            file.write_at(&bytes, at)?;
            let mut engine = self.engine();
            let Some(slice) = engine.ended.slices.iter_mut().find(|slice| slice.number == number) else {
                continue;
            };
            slice.buffer.drain(..bytes.len());
            slice.file_len += bytes.len() as u64;
            slice.file_crc = crc32c::crc32c_append(slice.file_crc, &bytes);
            slice.dirty = true;
            drop(engine);
            self.note_progress();
        }
    }

    fn sync_dirty(&self) -> io::Result<()> {
        let files: Vec<Arc<dyn DiskFile>> = {
            let mut engine = self.engine();
            let tables = engine.tables.values_mut().filter(|table| table.dirty).flat_map(|table| {
                table.dirty = false;
                [table.data.clone(), table.keys.clone()]
            });
            let mut files: Vec<_> = tables.collect();
            for slice in engine.ended.slices.iter_mut().filter(|slice| slice.dirty) {
                slice.dirty = false;
                files.push(slice.file.clone());
            }
            files
        };
        sync_all(&files, Builder::new).map_err(beyond_repair)
    }

    /// Removes what the new manifest no longer names, and uses old segments again.
    fn let_go(&self, snapshot: Snapshot) -> io::Result<()> {
        let mut names: Vec<String> = snapshot
            .buried
            .iter()
            .flat_map(|number| [format!("table-{number}.data"), format!("table-{number}.keys")])
            .chain(snapshot.slices.iter().map(|slice| format!("ended-{}", slice.number)))
            .collect();
        names.extend(snapshot.old_claims.iter().map(|number| format!("claims-{number}")));
        let retired: Vec<u32> = {
            let mut engine = self.engine();
            let mut retired = Vec::new();
            while engine.journal.segments.len() > 1
                && engine
                    .journal
                    .segments
                    .front()
                    .is_some_and(|first| first.number < snapshot.manifest.journal_start)
            {
                retired.extend(engine.journal.segments.pop_front().map(|segment| segment.number));
            }
            // What was added since the snapshot is little; counting it as covered delays the next checkpoint a little.
            engine.checkpointed_at = engine.journal.appended;
            engine.claim_files.retain(|number| !snapshot.old_claims.contains(number));
            retired
        };
        for number in retired {
            self.reuse(number)?;
        }
        for name in names {
            match self.disk.remove(&self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.note_progress();
        self.room.notify_waiters();
        Ok(())
    }

    /// Gives an old segment a new number and keeps it ready, unless there are enough.
    fn reuse(&self, old: u32) -> io::Result<()> {
        /// Segments kept ready at the most: a burst takes several at once.
        const READY_MAX: usize = 6;
        let path = self.dir.join(format!("journal-{old}"));
        // One that came with a backup has no room laid down, and one of format 1 no header.
        let len = self.disk.open(&path)?.len()?;
        let number = {
            let mut engine = self.engine();
            let outdated = old < engine.journal.salted_from || len < engine.options.segment_bytes;
            if engine.journal.spares.len() >= READY_MAX || outdated {
                drop(engine);
                return self.disk.remove(&path);
            }
            engine.file_number()
        };
        let segment = super::segment::reuse(&*self.disk, &self.dir, old, number)?;
        self.disk.sync_dir(&self.dir)?;
        self.engine().journal.spares.push_back(segment);
        Ok(())
    }

    /// The last checkpoint before the store is closed.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        {
            let mut engine = self.engine();
            engine.check_open()?;
            engine.closed = Some("the store is closed".into());
        }
        // The background thread may be in the middle of a round: it goes first.
        let _keeping = super::locked(&self.keeping);
        self.checkpoint().map_err(|error| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                format!("the last checkpoint failed: {error}; nothing is lost"),
            )
            .with_source(error)
        })
    }
}

impl Engine {
    /// The snapshot could not be written: everything is as it was, and the next one tries again.
    fn take_back(&mut self, snapshot: Snapshot) {
        for gone in snapshot.gone {
            if let Some(table) = self.tables.get_mut(&gone.table) {
                (table.keys_len, table.keys_crc) = (gone.keys_len, gone.keys_crc);
                table.gone.extend(gone.entries);
            }
        }
        self.graveyard.extend(snapshot.buried);
        self.ended_over.extend(snapshot.slices);
    }
}

/// Syncs many files a few at a time: the file system then writes its own journal once for several of them.
/// Where there is no thread to be had, this one does the work: a checkpoint must not depend on a spare thread.
fn sync_all(files: &[Arc<dyn DiskFile>], builder: impl Fn() -> Builder) -> io::Result<()> {
    /// Threads that sync beside each other.
    const THREADS: usize = 8;
    if files.len() <= 2 {
        return files.iter().try_for_each(|file| file.sync());
    }
    let sync = |some: &[Arc<dyn DiskFile>]| some.iter().try_for_each(|file| file.sync());
    std::thread::scope(|scope| {
        let part = files.len().div_ceil(THREADS);
        let threads: Vec<_> = files
            .chunks(part)
            .map(|some| builder().spawn_scoped(scope, move || sync(some)).map_err(|_| some))
            .collect();
        threads.into_iter().try_for_each(|thread| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that syncs files panicked")))
            }
            Err(some) => sync(some),
        })
    })
}

/// `segment` was the current one when the checkpoint began: what ended since then is nowhere else.
fn take_snapshot(engine: &mut Engine, segment: u32, claims: u32) -> Snapshot {
    let next_frame = engine.journal.cut();
    let first = engine.journal.segments.iter().find(|known| known.live > 0 || known.number == segment);
    let (journal_start, first_frame) =
        first.map_or((segment, next_frame), |known| (known.number, known.first));
    let buried = std::mem::take(&mut engine.graveyard);
    for number in &buried {
        engine.tables.remove(number);
    }
    let slices = std::mem::take(&mut engine.ended_over);
    let mut gone = Vec::new();
    let mut tables = Vec::new();
    for table in engine.tables.values_mut() {
        if !table.gone.is_empty() {
            let mut bytes = Vec::with_capacity(table.gone.len() / 5 * KEY_BYTES + KEY_BYTES);
            let entries = std::mem::take(&mut table.gone);
            write_gone(&entries, &mut bytes);
            let (keys_len, keys_crc) = (table.keys_len, table.keys_crc);
            table.added_keys(&bytes);
            let (table, file) = (table.number, table.keys.clone());
            gone.push(Gone { table, file, bytes, entries, keys_len, keys_crc });
        }
        tables.push(TableLine {
            number: table.number,
            kind: table.kind,
            data_len: table.data_len,
            keys_len: table.keys_len,
            keys_crc: table.keys_crc,
        });
    }
    tables.sort_by_key(|table| table.number);
    let Engine { lanes, ended, .. } = &mut *engine;
    // If the manifest cannot be written, the one before it still names them: a lane may have two numbers then, and keeps the later one.
    let forgotten = lanes.forget(journal_start, |number| ended.names_lane(number));
    let mut lanes: Vec<_> = engine.lanes.numbered().map(lane_line).collect();
    lanes.sort_by_key(|line| line.number);
    let manifest = Manifest {
        format: FORMAT,
        journal_start,
        first_frame,
        next_frame,
        opened: engine.opened.0,
        tables,
        slices: engine
            .ended
            .slices
            .iter()
            .map(|slice| SliceLine { number: slice.number, len: slice.file_len, crc: slice.file_crc })
            .collect(),
        lanes,
        accepted: engine.totals.accepted,
        delivered: engine.totals.delivered,
        cancelled: engine.totals.cancelled,
        purged: engine.totals.purged,
        next_file: engine.next_file,
        next_version: engine.next_version,
        claims,
        salted_from: engine.journal.salted_from,
        next_lane: engine.lanes.next().unwrap_or(u32::MAX),
    };
    let old_claims = engine.claim_files.clone();
    Snapshot { manifest, gone, buried, slices, old_claims, forgotten, next_frame }
}

fn lane_line((number, state): (u32, &LaneState)) -> LaneLine {
    let (_, name) = state.lane.parts();
    let queue = state.lane.queue().is_some();
    LaneLine { queue, name: name.to_owned(), paused: state.paused, number: Some(number) }
}

/// What is claimed now, for the next claims log.
fn notes(engine: &Engine) -> Vec<Note> {
    engine
        .flight
        .iter()
        .map(|(token, held)| Note {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: u32::try_from(held.lease_end.since(engine.now.mono()).as_millis()).unwrap_or(u32::MAX),
            client: held.holder == Holder::Client,
            alone: held.alone,
            released: false,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct CountedFile(AtomicUsize);

    impl DiskFile for CountedFile {
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn sync(&self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn files_are_synced_also_where_no_thread_can_be_started() {
        /// No address space has room for such a stack.
        const STACK: usize = 1 << 47;
        let counted: Vec<Arc<CountedFile>> = (0..20).map(|_| Arc::default()).collect();
        let files: Vec<Arc<dyn DiskFile>> = counted.iter().map(|file| file.clone() as _).collect();
        assert!(Builder::new().stack_size(STACK).spawn(|| ()).is_err());
        sync_all(&files, || Builder::new().stack_size(STACK)).unwrap();
        assert!(counted.iter().all(|file| file.0.load(Ordering::SeqCst) == 1));
    }
}
