//! Checkpoints: sync what was moved, name it in a new manifest, and delete what that manifest does not need.

use std::{
    io,
    sync::{Arc, PoisonError},
    thread::Builder,
};

use duly_core::{
    Lane,
    store::{StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    claim_log::{ClaimLog, ClaimRecord},
    disk::{DiskFile, beyond_repair},
    ended::Slice,
    engine::Engine,
    lanes::LaneState,
    manifest::{EverCounts, FORMAT, JournalStart, LaneLine, Manifest, TableLine},
    table::{Table, TombstoneRecords},
};

/// The files that one checkpoint writes, and those that can be deleted afterwards.
struct Snapshot {
    manifest: Manifest,
    tombstones: Vec<TombstoneRecords>,
    /// Tables that the manifest does not name.
    obsolete: Vec<u32>,
    /// Slices that it does not name.
    expired: Vec<Slice>,
    /// Claims logs that it does not need.
    old_claims: Vec<u32>,
    /// Lanes that it does not name.
    forgotten: Vec<Lane>,
    /// The manifest is valid only once all frames before this one are durable.
    next_frame: u64,
}

impl SharedEngine {
    /// Makes a checkpoint: afterwards the journal before it is not needed.
    pub(super) fn checkpoint(&self) -> io::Result<()> {
        let (segment, added) = {
            let mut engine = self.engine();
            (engine.journal.current(), engine.journal.cut())
        };
        // Entries are read back from the journal below. A reused segment holds old bytes until the frame is written.
        if !self.wait_durable(added) {
            return Ok(());
        }
        self.flush(true)?;
        self.flush_dead()?;
        self.relocate(segment)?;
        self.write_slices()?;
        self.sync_dirty()?;
        let claims = self.engine().sequences.file_number();
        let claims_path = self.dir.join(format!("claims-{claims}"));
        let claims_file = self.disk.open(&claims_path)?;
        let room = ClaimLog::room(self.engine().options.segment_bytes);
        claims_file.allocate(room).inspect_err(|_| {
            // A file that is allocated in part would only take room that is missing.
            let _ = self.disk.remove(&claims_path);
        })?;
        let mut snapshot = {
            let mut engine = self.engine();
            // Under the lock, so that no claim falls between the two files.
            self.claims.switch(claims_file, &claim_records(&engine))?;
            let snapshot = take_snapshot(&mut engine, segment, claims);
            engine.in_flight.add_log(claims);
            snapshot
        };
        self.forget_numbers(&snapshot.forgotten);
        match self.write_snapshot(&mut snapshot) {
            Ok(true) => self.delete_obsolete(snapshot),
            Ok(false) => Ok(()),
            Err(error) => {
                self.engine().restore(snapshot);
                Err(error)
            }
        }
    }

    /// Removes forgotten lanes from the numbers that inserts look up without the engine's lock. An insert that has read such a number
    /// gets another one when its message is accepted.
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
        for records in &snapshot.tombstones {
            records.file.write_at(&records.bytes, records.at)?;
            records.file.sync().map_err(beyond_repair)?;
            self.steps.finish_step();
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
        while !engine.journal.is_durable_before(next) {
            if engine.lifecycle.is_stopped() {
                return false;
            }
            engine.journal.await_frame();
            self.wake(&mut engine);
            engine = self.background.wait(engine).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Writes the ends of messages to their slices.
    pub(super) fn write_slices(&self) -> io::Result<()> {
        loop {
            let Some(unwritten) = self.engine().ended.unwritten() else { return Ok(()) };
            unwritten.file.write_at(&unwritten.bytes, unwritten.at)?;
            self.steps.finish_step();
            let is_kept = self.engine().ended.wrote(&unwritten);
            if is_kept {
                self.note_progress();
            }
        }
    }

    fn sync_dirty(&self) -> io::Result<()> {
        let files: Vec<Arc<dyn DiskFile>> = {
            let mut engine = self.engine();
            let dirty = engine.tables.iter_mut().filter_map(|table| table.take_dirty().then_some(table));
            let files = dirty.flat_map(|table| [table.data().clone(), table.keys().file().clone()]);
            let mut files: Vec<_> = files.collect();
            files.extend(engine.ended.take_dirty());
            files
        };
        sync_all(&files, Builder::new, &|| self.steps.finish_step()).map_err(beyond_repair)
    }

    /// Deletes the files that the new manifest does not name, and reuses old segments.
    fn delete_obsolete(&self, snapshot: Snapshot) -> io::Result<()> {
        let mut names: Vec<String> = snapshot
            .obsolete
            .iter()
            .flat_map(|number| [format!("table-{number}.data"), format!("table-{number}.keys")])
            .chain(snapshot.expired.iter().map(|slice| format!("ended-{}", slice.number())))
            .collect();
        names.extend(snapshot.old_claims.iter().map(|number| format!("claims-{number}")));
        let unneeded = {
            let mut engine = self.engine();
            engine.in_flight.remove_logs(&snapshot.old_claims);
            engine.journal.checkpointed(snapshot.manifest.journal.segment)
        };
        for number in unneeded {
            self.reuse(number)?;
            self.steps.finish_step();
        }
        for name in names {
            self.steps.finish_step();
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
        // A segment from a backup is not allocated to its full length, and one of format 1 has no header.
        let len = self.disk.open(&path)?.len()?;
        let number = {
            let mut engine = self.engine();
            let outdated = old < engine.journal.salted_from() || len < engine.options.segment_bytes;
            if engine.journal.spare_count() >= READY_MAX || outdated {
                drop(engine);
                return self.disk.remove(&path);
            }
            engine.sequences.file_number()
        };
        let segment = super::segment::reuse(&*self.disk, &self.dir, old, number)?;
        self.disk.sync_dir(&self.dir)?;
        self.engine().journal.add_spare(segment);
        Ok(())
    }

    /// The last checkpoint before the store is closed.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        {
            let mut engine = self.engine();
            engine.check_open()?;
            engine.lifecycle.close("the store is closed".into());
        }
        // The background thread finishes its round first.
        let _round = super::locked(&self.round);
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
    /// The snapshot could not be written: everything is as it was before, and the next checkpoint tries again.
    fn restore(&mut self, snapshot: Snapshot) {
        for records in snapshot.tombstones {
            if let Some(table) = self.tables.get_mut(records.table) {
                table.restore_tombstones(records);
            }
        }
        self.tables.put_obsolete_back(snapshot.obsolete);
        self.ended.put_expired_back(snapshot.expired);
    }
}

/// Syncs many files, several at the same time: the file system then writes its own journal once for several of them.
/// If no thread can be started, the calling one does the work: a checkpoint must not depend on another thread.
fn sync_all(
    files: &[Arc<dyn DiskFile>],
    builder: impl Fn() -> Builder,
    after_each: &(impl Fn() + Sync),
) -> io::Result<()> {
    /// Threads that sync at the same time.
    const THREADS: usize = 8;
    let sync =
        |some: &[Arc<dyn DiskFile>]| some.iter().try_for_each(|file| file.sync().inspect(|()| after_each()));
    if files.len() <= 2 {
        return sync(files);
    }
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

/// Takes the state of now for a manifest. `segment` was the current one when the checkpoint began: ends since then are only in the
/// journal.
fn take_snapshot(engine: &mut Engine, segment: u32, claims: u32) -> Snapshot {
    let next_frame = engine.journal.cut();
    let (first_segment, first_frame) = engine.journal.first_needed(segment).unwrap_or((segment, next_frame));
    let obsolete = engine.tables.take_obsolete();
    let expired = engine.ended.take_expired();
    let tombstones = engine.tables.iter_mut().filter_map(Table::take_tombstones).collect();
    let mut tables: Vec<TableLine> = engine.tables.iter().map(table_line).collect();
    tables.sort_by_key(|table| table.number);
    let Engine { lanes, ended, .. } = &mut *engine;
    // If this manifest cannot be written, the one before it still names the forgotten lanes. After a restart a lane may then have two
    // numbers, and keeps the later one.
    let forgotten = lanes.forget(first_segment, |number| ended.names_lane(number));
    let mut lanes: Vec<_> = engine.lanes.numbered().map(lane_line).collect();
    lanes.sort_by_key(|line| line.number);
    let manifest = Manifest {
        format: FORMAT,
        journal: JournalStart { segment: first_segment, first_frame, next_frame },
        opened: engine.buckets.opened().0,
        tables,
        slices: engine.ended.lines(),
        lanes,
        ever: EverCounts::of(&engine.ever),
        next_file: engine.sequences.last_file(),
        next_version: engine.sequences.next_version(),
        claims,
        salted_from: engine.journal.salted_from(),
        next_lane: engine.lanes.next().unwrap_or(u32::MAX),
    };
    let old_claims = engine.in_flight.logs().to_vec();
    Snapshot { manifest, tombstones, obsolete, expired, old_claims, forgotten, next_frame }
}

fn table_line(table: &Table) -> TableLine {
    let (number, kind, data_len) = (table.number(), table.kind(), table.data_len());
    TableLine { number, kind, data_len, keys_len: table.keys().len(), keys_crc: table.keys().crc() }
}

fn lane_line((number, state): (u32, &LaneState)) -> LaneLine {
    let (_, name) = state.lane().parts();
    let queue = state.lane().queue().is_some();
    LaneLine { queue, name: name.to_owned(), paused: state.is_paused(), number: Some(number) }
}

/// The claims for the next claims log.
pub(super) fn claim_records(engine: &Engine) -> Vec<ClaimRecord> {
    engine
        .in_flight
        .iter()
        .map(|(token, held)| ClaimRecord {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: u32::try_from(held.lease_end.since(engine.now.mono()).as_millis()).unwrap_or(u32::MAX),
            client: held.holder.is_client(),
            alone: held.alone,
            only: held.only,
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
        sync_all(&files, || Builder::new().stack_size(STACK), &|| ()).unwrap();
        assert!(counted.iter().all(|file| file.0.load(Ordering::SeqCst) == 1));
    }
}
