//! Runs: the backlog of lanes on disk, sorted by lane and release.

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{
    super::{
        MoveGuard, SharedEngine,
        disk::DiskFile,
        engine::Engine,
        entry::Peek,
        index::{Marks, Position},
        lanes::{Extent, HotEntry, ReleaseKey},
        options::STEP,
        table::{KeyRecord, TableKind, check_len, write_key},
    },
    RunEntry,
    blocked::is_unread,
};

/// Where the entries of a new run come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// They are in no hot window, and are read from the run when their turn comes.
    Disk,
    /// They stay in the hot window.
    Memory,
}

/// Entries that were taken out of hot windows and are on their way to a run.
#[derive(Default)]
struct Tails {
    loaded: Vec<RunEntry>,
    /// Bytes of what is loaded.
    bytes: u64,
    /// Bytes after which a run is written.
    run_bytes: u64,
    /// Not readable yet, or no room: these go back to the hot window.
    unread: Vec<RunEntry>,
}

impl Tails {
    /// Reads the entry, unless it is in memory.
    fn load(&mut self, one: RunEntry, file: Option<Arc<dyn DiskFile>>) {
        match one.loaded(file) {
            Ok(one) => {
                self.bytes += one.data.len() as u64;
                self.loaded.push(one);
            }
            Err(one) => self.unread.push(one),
        }
    }
}

/// Whether the hot window of a lane is within its share of memory.
enum Weighed {
    /// It exceeds the share from this key on.
    Beyond(ReleaseKey),
    /// All of it is within the share.
    Within,
    /// It is within the share up to this key; the rest was not counted yet.
    More(ReleaseKey),
}

impl SharedEngine {
    /// Writes entries as a run, sorted by lane and release, and adds its extents to the lanes.
    pub(super) fn write_run(
        &self,
        _: &MoveGuard<'_>,
        moving: &mut [RunEntry],
        from: Source,
    ) -> io::Result<()> {
        if moving.is_empty() {
            return Ok(());
        }
        moving.sort_unstable_by(|a, b| (a.lane, &a.key).cmp(&(b.lane, &b.key)));
        let (number, records) = self.new_run(moving.iter())?;
        let mut offset = 0;
        let mut extents: Vec<(u32, Extent)> = Vec::new();
        for some in moving.chunks(STEP) {
            let mut engine = self.engine();
            for one in some {
                let position = Position::new(number, offset);
                let len = one.data.len() as u64;
                match extents.last_mut() {
                    Some((lane, extent)) if *lane == one.lane => extent.end = offset + len,
                    _ => extents.push((
                        one.lane,
                        Extent { table: number, next: offset, end: offset + len, key: one.key.clone() },
                    )),
                }
                offset += len;
                if !engine.settle_in_run(one, position) {
                    engine.tables.add_tombstone(position);
                }
            }
        }
        if from == Source::Disk {
            let mut engine = self.engine();
            for (lane, extent) in extents {
                if let Some(mut state) = engine.lanes.get_mut(lane) {
                    state.add_extent(extent);
                }
            }
        }
        self.finish_table(number, offset, &records);
        Ok(())
    }

    /// Writes a run and its keys before the index is changed: if there is no room for both, nothing has happened.
    pub(in crate::embedded) fn new_run<'a>(
        &self,
        moving: impl Iterator<Item = &'a RunEntry> + Clone,
    ) -> io::Result<(u32, Vec<u8>)> {
        let number = self.make_table(TableKind::Run)?;
        let (data, keys) = {
            let engine = self.engine();
            let table = engine.tables.get(number).ok_or(io::ErrorKind::NotFound)?;
            (table.data().clone(), table.keys().file().clone())
        };
        let len: usize = moving.clone().map(|one| one.data.len()).sum();
        check_len(number, len as u64).inspect_err(|_| self.unmake_table(number))?;
        let mut bytes = Vec::with_capacity(len);
        let mut records = Vec::new();
        for one in moving {
            let position = Position::new(number, bytes.len() as u64);
            bytes.extend_from_slice(&one.data);
            let on_time = Peek::framed(&one.data).is_ok_and(|peek| peek.due() == one.key.ready);
            let key = KeyRecord {
                hash: one.hash,
                ready: one.key.ready,
                on_time,
                off8: position.off8,
                lane: one.lane,
            };
            write_key(key, &mut records);
        }
        let written = data.write_at(&bytes, 0).and_then(|()| keys.write_at(&records, 0));
        self.steps.finish_step();
        written.inspect_err(|_| self.unmake_table(number))?;
        Ok((number, records))
    }

    /// Moves the tails of the fullest lanes from memory to runs, until the rest takes at most half of the budget.
    pub(in crate::embedded) fn spill(&self) -> io::Result<()> {
        let (lanes, share) = {
            let engine = self.engine();
            let lanes = engine.lanes.with_hot();
            let share = engine.options.window_bytes / 2 / lanes.len().max(1);
            (lanes, share)
        };
        self.spill_tails(lanes, |number| self.beyond(number, share))
    }

    /// Moves what lanes have in memory to runs, for each lane from the key on that `cut` returns.
    pub(super) fn spill_tails(
        &self,
        numbers: Vec<u32>,
        cut: impl Fn(u32) -> Option<ReleaseKey>,
    ) -> io::Result<()> {
        let moves = self.lock_moves();
        let mut tails = Tails { run_bytes: self.run_bytes(), ..Tails::default() };
        let spilled = numbers.iter().try_for_each(|number| match cut(*number) {
            Some(cut) => self.spill_lane(&moves, *number, &cut, &mut tails),
            None => Ok(()),
        });
        let spilled = spilled.and_then(|()| self.write_run(&moves, &mut tails.loaded, Source::Disk));
        let mut engine = self.engine();
        if spilled.is_err() {
            tails.unread.append(&mut tails.loaded);
        }
        tails.unread.into_iter().for_each(|one| engine.put_back(one));
        for number in numbers {
            if let Some(mut lane) = engine.lanes.get_mut(number) {
                lane.end_spilling();
            }
        }
        if engine.is_window_full() {
            engine.lanes.recount_hot_bytes();
        }
        drop(engine);
        self.moved.notify_waiters();
        spilled
    }

    /// Moves what a lane has in memory from `cut` on to runs. What finds no room stays in `tails`.
    fn spill_lane(
        &self,
        moves: &MoveGuard<'_>,
        number: u32,
        cut: &ReleaseKey,
        tails: &mut Tails,
    ) -> io::Result<()> {
        loop {
            let mut some = self.engine().take_tail(number, cut).into_iter();
            if some.len() == 0 {
                return Ok(());
            }
            let written: io::Result<()> = some.by_ref().try_for_each(|(one, file)| {
                tails.load(one, file);
                self.steps.finish_step();
                if tails.bytes < tails.run_bytes {
                    return Ok(());
                }
                self.write_run(moves, &mut tails.loaded, Source::Disk)?;
                (tails.loaded, tails.bytes) = (Vec::new(), 0);
                Ok(())
            });
            tails.unread.extend(some.map(|(one, _)| one));
            written?;
        }
    }

    /// The first key of a lane for which its share of memory has no room. Counted in bytes, as entries have any size.
    fn beyond(&self, number: u32, share: usize) -> Option<ReleaseKey> {
        let mut kept = 0;
        let mut after = None;
        loop {
            match self.engine().weigh_lane(number, after, share, &mut kept) {
                Weighed::Beyond(key) => return Some(key),
                Weighed::Within => return None,
                Weighed::More(key) => after = Some(key),
            }
        }
    }

    /// Bytes of a run. Entries that are read back for it are in memory until it is written.
    pub(super) fn run_bytes(&self) -> u64 {
        2 * self.engine().options.chunk_bytes
    }

    /// Merges small runs, so that there are never many of them.
    pub(in crate::embedded) fn merge_runs(&self, runs_max: usize) -> io::Result<()> {
        let small: Vec<u32> = {
            let engine = self.engine();
            let mut runs: Vec<(u64, u32)> = engine
                .tables
                .iter()
                .filter(|table| table.kind() == TableKind::Run && table.live() > 0)
                .filter(|table| !engine.tables.blocked().has(table.number()))
                .map(|table| (table.live_bytes(), table.number()))
                .collect();
            if runs.len() <= runs_max {
                return Ok(());
            }
            runs.sort_unstable();
            let mut total = 0;
            let chunk = engine.options.chunk_bytes;
            runs.into_iter()
                .take_while(|(bytes, _)| {
                    total += bytes;
                    total <= chunk
                })
                .map(|(_, number)| number)
                .collect()
        };
        if small.len() < 2 {
            return Ok(());
        }
        let mut moving = Vec::new();
        for table in &small {
            let read = self.each_chunk(*table, |bytes, entries| {
                for some in entries.chunks(STEP) {
                    let mut engine = self.engine();
                    moving.extend(some.iter().filter_map(|(hash, from, range)| {
                        let peek = Peek::framed(&bytes[range.clone()]).ok()?;
                        // An entry on its way back to a bucket is not near: the bucket counts it.
                        let marks = engine.index.marks(*hash, *from)?;
                        if !marks.near || marks.claimed {
                            return None;
                        }
                        let (lane, key) = (peek.lane(), ReleaseKey::of(peek).ok()?);
                        engine.lanes.get_mut(lane)?.note_spilling(&key);
                        // A copy: one live entry must not keep the whole chunk in memory.
                        let data = Bytes::copy_from_slice(&bytes[range.clone()]);
                        Some(RunEntry { lane, key, hash: *hash, from: *from, suspect: peek.is_lost(), data })
                    }));
                }
                Ok(())
            });
            match read {
                // The others are merged without what cannot be read.
                Err(error) if is_unread(&error) => self.block(*table, &error)?,
                read => read?,
            }
        }
        let lanes: Vec<u32> = moving.iter().map(|one| one.lane).collect();
        let moves = self.lock_moves();
        let written = self.write_run(&moves, &mut moving, Source::Disk);
        let mut engine = self.engine();
        for number in lanes {
            if let Some(mut lane) = engine.lanes.get_mut(number) {
                lane.end_spilling();
            }
        }
        written
    }
}

/// The marks of a pending message in a run.
const IN_RUN: Marks = Marks { claimed: false, near: true };

impl Engine {
    /// Points the index to the entry in a run. `false` if the message has ended, or was claimed meanwhile and stays where it was.
    pub(in crate::embedded) fn settle_in_run(&mut self, one: &RunEntry, position: Position) -> bool {
        let Some(marks) = self.index.marks(one.hash, one.from).filter(|marks| !marks.claimed) else {
            return false;
        };
        self.index.replace(one.hash, one.from, position, Some(IN_RUN));
        self.forget_position(one.from, one.data.len() as u64);
        if let Some(mut lane) = self.lanes.get_mut(one.lane) {
            if !marks.near {
                lane.add_near();
            }
            lane.move_hot(&one.key, position);
        }
        self.tables.add_live(position.file, one.data.len() as u64);
        true
    }

    /// Adds what the hot entries of a lane after `after` cost to `kept`, a step at a time.
    fn weigh_lane(&self, number: u32, after: Option<ReleaseKey>, share: usize, kept: &mut usize) -> Weighed {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(lane) = self.lanes.get(number) else { return Weighed::Within };
        let from = after.map_or(Unbounded, Excluded);
        for (seen, (key, near)) in lane.hot().range((from, Unbounded)).enumerate() {
            *kept += near.cost();
            if *kept > share {
                return Weighed::Beyond(key.clone());
            }
            if seen + 1 == STEP {
                return Weighed::More(key.clone());
            }
        }
        Weighed::Within
    }

    /// Takes some of the last messages out of the hot window of a lane, from `cut` on.
    pub(in crate::embedded) fn take_tail(
        &mut self,
        number: u32,
        cut: &ReleaseKey,
    ) -> Vec<(RunEntry, Option<Arc<dyn DiskFile>>)> {
        let mut some = Vec::new();
        while some.len() < STEP {
            let Some(mut lane) = self.lanes.get_mut(number) else { break };
            let Some((key, near)) = lane.spill_last(cut) else { break };
            if self.index.marks(near.hash, near.position).is_none_or(|marks| marks.claimed) {
                continue;
            }
            let file = if near.data.is_none() && self.is_written(near.position) {
                self.file(near.position)
            } else {
                None
            };
            let (hash, from, suspect) = (near.hash, near.position, near.suspect);
            some.push((
                RunEntry { lane: number, key, hash, from, suspect, data: near.data.unwrap_or_default() },
                file,
            ));
        }
        some
    }

    /// Puts a message that was on its way to a run back into the hot window, unless it was changed or has ended meanwhile: a newer entry
    /// may be there under the same key.
    pub(in crate::embedded) fn put_back(&mut self, one: RunEntry) {
        if self.index.marks(one.hash, one.from).is_none_or(|marks| marks.claimed) {
            return;
        }
        if let Some(mut lane) = self.lanes.get_mut(one.lane) {
            let entry = HotEntry { hash: one.hash, position: one.from, data: None, suspect: one.suspect };
            lane.insert_hot(one.key, entry);
        }
    }
}
