//! What nobody takes, by lane.

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{
    super::{
        Limbo, Shared,
        disk::DiskFile,
        engine::Engine,
        entry::Peek,
        index::{Marks, Place},
        lanes::{Extent, HotEntry, NearKey},
        options::STEP,
        table::{KeyRecord, TableKind, check_len, write_key},
    },
    Moving,
    blocked::is_unread,
};

/// Whether the entries of a run are also in memory, or must be read from it when their turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Disk,
    Memory,
}

/// What was taken out of lanes and is on its way to a run.
#[derive(Default)]
struct Tails {
    loaded: Vec<Moving>,
    /// Bytes of what is loaded.
    bytes: u64,
    /// Bytes after which a run is written.
    run_bytes: u64,
    /// Not written yet, or no room: these go back to their lanes.
    unread: Vec<Moving>,
}

impl Tails {
    /// Reads the entry, unless it is in memory.
    fn load(&mut self, one: Moving, file: Option<Arc<dyn DiskFile>>) {
        match one.loaded(file) {
            Ok(one) => {
                self.bytes += one.data.len() as u64;
                self.loaded.push(one);
            }
            Err(one) => self.unread.push(one),
        }
    }
}

/// How far the weighing of a lane came.
enum Weighed {
    /// The share ends before this key.
    Beyond(NearKey),
    /// All of the lane is within its share.
    Within,
    /// Within its share up to this key; to be continued.
    More(NearKey),
}

impl Shared {
    /// Writes entries as a run, in order of lane and release, and lets the lanes know.
    pub(super) fn write_run(&self, _: &Limbo<'_>, moving: &mut [Moving], from: Source) -> io::Result<()> {
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
                let place = Place::new(number, offset);
                let len = one.data.len() as u64;
                match extents.last_mut() {
                    Some((lane, extent)) if *lane == one.lane => extent.end = offset + len,
                    _ => extents.push((
                        one.lane,
                        Extent { table: number, next: offset, end: offset + len, key: one.key.clone() },
                    )),
                }
                offset += len;
                if !engine.settle_in_run(one, place) {
                    engine.gone_on_the_way(place);
                }
            }
        }
        if from == Source::Disk {
            let mut engine = self.engine();
            for (lane, extent) in extents {
                if let Some(state) = engine.lanes.get_mut(lane) {
                    state.extents.push(extent);
                }
            }
        }
        self.finish_table(number, offset, &records);
        Ok(())
    }

    /// Writes a run and its keys, before anything is moved: if there is no room for both, nothing has happened.
    pub(in crate::embedded) fn new_run<'a>(
        &self,
        moving: impl Iterator<Item = &'a Moving> + Clone,
    ) -> io::Result<(u32, Vec<u8>)> {
        let number = self.make_table(TableKind::Run)?;
        let (data, keys) = {
            let engine = self.engine();
            let table = engine.tables.get(&number).ok_or(io::ErrorKind::NotFound)?;
            (table.data.clone(), table.keys.clone())
        };
        let len: usize = moving.clone().map(|one| one.data.len()).sum();
        check_len(number, len as u64).inspect_err(|_| self.unmake_table(number))?;
        let mut bytes = Vec::with_capacity(len);
        let mut records = Vec::new();
        for one in moving {
            let place = Place::new(number, bytes.len() as u64);
            bytes.extend_from_slice(&one.data);
            let on_time = Peek::framed(&one.data).is_ok_and(|peek| peek.due() == one.key.ready);
            let key =
                KeyRecord { hash: one.hash, ready: one.key.ready, on_time, off8: place.off8, lane: one.lane };
            write_key(key, &mut records);
        }
        let written = data.write_at(&bytes, 0).and_then(|()| keys.write_at(&records, 0));
        written.inspect_err(|_| self.unmake_table(number))?;
        Ok((number, records))
    }

    /// Moves the tails of the fullest lanes from memory to runs, until what stays costs at most half of the window.
    pub(in crate::embedded) fn spill(&self) -> io::Result<()> {
        let (crowded, share) = {
            let engine = self.engine();
            let crowded = engine.crowded();
            let share = engine.options.window_bytes / 2 / crowded.len().max(1);
            (crowded, share)
        };
        self.spill_tails(crowded, |number| self.beyond(number, share))
    }

    /// Moves what lanes have in memory from the key that `cut` says to runs.
    pub(super) fn spill_tails(
        &self,
        numbers: Vec<u32>,
        cut: impl Fn(u32) -> Option<NearKey>,
    ) -> io::Result<()> {
        let limbo = self.limbo();
        let mut tails = Tails { run_bytes: self.run_bytes(), ..Tails::default() };
        let spilled = numbers.iter().try_for_each(|number| match cut(*number) {
            Some(cut) => self.spill_lane(&limbo, *number, &cut, &mut tails),
            None => Ok(()),
        });
        let spilled = spilled.and_then(|()| self.write_run(&limbo, &mut tails.loaded, Source::Disk));
        let mut engine = self.engine();
        if spilled.is_err() {
            tails.unread.append(&mut tails.loaded);
        }
        tails.unread.into_iter().for_each(|one| engine.put_back(one));
        for number in numbers {
            if let Some(lane) = engine.lanes.get_mut(number) {
                lane.limbo = None;
            }
        }
        if engine.window > engine.options.window_bytes {
            engine.weigh_window();
        }
        drop(engine);
        self.moved.notify_waiters();
        spilled
    }

    /// Moves what a lane has in memory from `cut` on to runs. What finds no room stays in `tails`.
    fn spill_lane(&self, limbo: &Limbo<'_>, number: u32, cut: &NearKey, tails: &mut Tails) -> io::Result<()> {
        loop {
            let mut some = self.engine().take_tail(number, cut).into_iter();
            if some.len() == 0 {
                return Ok(());
            }
            let written: io::Result<()> = some.by_ref().try_for_each(|(one, file)| {
                tails.load(one, file);
                if tails.bytes < tails.run_bytes {
                    return Ok(());
                }
                self.write_run(limbo, &mut tails.loaded, Source::Disk)?;
                (tails.loaded, tails.bytes) = (Vec::new(), 0);
                Ok(())
            });
            tails.unread.extend(some.map(|(one, _)| one));
            written?;
        }
    }

    /// The first key of a lane that its share of memory has no room for, by bytes: entries have any size.
    fn beyond(&self, number: u32, share: usize) -> Option<NearKey> {
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

    /// Bytes after which a run is written, so that what is read back for one does not fill the memory.
    pub(super) fn run_bytes(&self) -> u64 {
        2 * self.engine().options.chunk_bytes
    }

    /// Merges small runs, so that their number stays small whatever trickles in.
    pub(in crate::embedded) fn merge_runs(&self, runs_max: usize) -> io::Result<()> {
        let small: Vec<u32> = {
            let engine = self.engine();
            let mut runs: Vec<(u64, u32)> = engine
                .tables
                .values()
                .filter(|table| table.kind == TableKind::Run && table.live > 0)
                .filter(|table| !engine.blocked.has(table.number))
                .map(|table| (table.live_bytes, table.number))
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
                        // Not what is on its way back to a bucket, either: that one counts it.
                        let marks = engine.index.marks(*hash, *from)?;
                        if !marks.near || marks.claimed {
                            return None;
                        }
                        let (lane, key) = (peek.lane(), NearKey::of(peek).ok()?);
                        engine.lanes.get_mut(lane)?.note_limbo(&key);
                        // A copy: one live entry must not keep the chunk of a run that is mostly over.
                        let data = Bytes::copy_from_slice(&bytes[range.clone()]);
                        Some(Moving { lane, key, hash: *hash, from: *from, suspect: peek.is_lost(), data })
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
        let limbo = self.limbo();
        let written = self.write_run(&limbo, &mut moving, Source::Disk);
        let mut engine = self.engine();
        for number in lanes {
            if let Some(lane) = engine.lanes.get_mut(number) {
                lane.limbo = None;
            }
        }
        written
    }
}

/// The marks of what lies in a run and waits.
const IN_RUN: Marks = Marks { claimed: false, near: true };

impl Engine {
    /// The entry now lies in a run. `false` if it is gone, or claimed in the meantime and stays where it was.
    pub(in crate::embedded) fn settle_in_run(&mut self, one: &Moving, place: Place) -> bool {
        let Some(marks) = self.index.marks(one.hash, one.from).filter(|marks| !marks.claimed) else {
            return false;
        };
        self.index.replace(one.hash, one.from, place, Some(IN_RUN));
        self.leave(one.from, one.data.len() as u64);
        if let Some(lane) = self.lanes.get_mut(one.lane) {
            if !marks.near {
                lane.near_count += 1;
            }
            if let Some(near) = lane.near.get_mut(&one.key) {
                near.place = place;
            }
        }
        if let Some(table) = self.tables.get_mut(&place.file) {
            table.live += 1;
            table.live_bytes += one.data.len() as u64;
        }
        true
    }

    /// Counts anew what is in memory: callers wait for it, and must not wait for a miscount.
    fn weigh_window(&mut self) {
        self.window = self.lanes.iter().flat_map(|lane| lane.near.values()).map(HotEntry::cost).sum();
    }

    /// The lanes that have messages in memory.
    pub(super) fn crowded(&self) -> Vec<u32> {
        let crowded = self.lanes.numbered().filter(|(_, lane)| !lane.near.is_empty());
        let mut numbers: Vec<u32> = crowded.map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Adds what the near messages of a lane after `after` cost to `kept`, a step at a time.
    fn weigh_lane(&self, number: u32, after: Option<NearKey>, share: usize, kept: &mut usize) -> Weighed {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(lane) = self.lanes.get(number) else { return Weighed::Within };
        let from = after.map_or(Unbounded, Excluded);
        for (seen, (key, near)) in lane.near.range((from, Unbounded)).enumerate() {
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

    /// Takes some of the last messages that a lane has in memory, from `cut` on.
    pub(in crate::embedded) fn take_tail(
        &mut self,
        number: u32,
        cut: &NearKey,
    ) -> Vec<(Moving, Option<Arc<dyn DiskFile>>)> {
        let mut some = Vec::new();
        while some.len() < STEP {
            let Some(lane) = self.lanes.get_mut(number) else { break };
            let Some(last) = lane.near.last_entry().filter(|last| last.key() >= cut) else { break };
            let (key, near) = last.remove_entry();
            lane.note_limbo(&key);
            self.window = self.window.saturating_sub(near.cost());
            if self.index.marks(near.hash, near.place).is_none_or(|marks| marks.claimed) {
                continue;
            }
            let file =
                if near.data.is_none() && self.is_written(near.place) { self.file(near.place) } else { None };
            let (hash, from, suspect) = (near.hash, near.place, near.suspect);
            some.push((
                Moving { lane: number, key, hash, from, suspect, data: near.data.unwrap_or_default() },
                file,
            ));
        }
        some
    }

    /// Puts a message back that was on its way to a run, unless it was changed or ended on the way: then a newer place,
    /// under the same key perhaps, must not be overwritten.
    pub(in crate::embedded) fn put_back(&mut self, one: Moving) {
        if self.index.marks(one.hash, one.from).is_none_or(|marks| marks.claimed) {
            return;
        }
        let near = HotEntry { hash: one.hash, place: one.from, data: None, suspect: one.suspect };
        self.add_near(one.lane, one.key, near);
    }
}
