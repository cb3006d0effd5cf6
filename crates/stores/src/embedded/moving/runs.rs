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
        lanes::{Extent, Near, NearKey},
        options::{NEAR_COST, STEP},
        table::{KeyRecord, TableKind, read_entry, write_key},
    },
    Moving,
};

/// Whether the entries of a run are also in memory, or must be read from it when their turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Disk,
    Memory,
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
        let mut bytes = Vec::with_capacity(moving.clone().map(|one| one.data.len()).sum());
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

    /// Moves the tails of the fullest lanes from memory to a run.
    pub(in crate::embedded) fn spill(&self) -> io::Result<()> {
        let limbo = self.limbo();
        let (numbers, share) = {
            let engine = self.engine();
            let crowded: Vec<u32> = (0..engine.lanes.len() as u32)
                .filter(|number| engine.lanes.get(*number).is_some_and(|lane| !lane.near.is_empty()))
                .collect();
            let entries = engine.options.window_bytes / 2 / (2 * NEAR_COST);
            (crowded.clone(), entries / crowded.len().max(1))
        };
        let mut moving = Vec::new();
        let mut unread = Vec::new();
        let mut written = Ok(());
        let mut bytes = 0u64;
        for number in &numbers {
            while written.is_ok() {
                let some = self.engine().take_tail(*number, share);
                if some.is_empty() {
                    break;
                }
                for (one, file) in some {
                    let data = match one.data.is_empty() {
                        true => match file.map(|file| read_entry(&*file, one.from)) {
                            Some(Ok(data)) => Bytes::from(data),
                            // Not written yet: it goes back in the end and the next round takes it.
                            _ => {
                                unread.push(one);
                                continue;
                            }
                        },
                        false => one.data.clone(),
                    };
                    bytes += data.len() as u64;
                    moving.push(Moving { data, ..one });
                }
                if bytes > 2 * self.engine().options.chunk_bytes {
                    bytes = 0;
                    written = self.write_run(&limbo, &mut moving, Source::Disk);
                    if written.is_ok() {
                        moving.clear();
                    }
                }
            }
        }
        let written = written.and_then(|()| self.write_run(&limbo, &mut moving, Source::Disk));
        let mut engine = self.engine();
        if written.is_err() {
            unread.append(&mut moving);
        }
        unread.into_iter().for_each(|one| engine.put_back(one));
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
        written
    }

    /// Merges small runs, so that their number stays small whatever trickles in.
    pub(in crate::embedded) fn merge_runs(&self, runs_max: usize) -> io::Result<()> {
        let small: Vec<u32> = {
            let engine = self.engine();
            let mut runs: Vec<(u64, u32)> = engine
                .tables
                .values()
                .filter(|table| table.kind == TableKind::Run && table.live > 0)
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
            self.each_chunk(*table, |bytes, entries| {
                let mut engine = self.engine();
                for (hash, from, range) in entries {
                    let data = bytes.slice(range);
                    let Ok(peek) = Peek::framed(&data) else { continue };
                    let alive = engine.index.marks(hash, from).is_some_and(|marks| !marks.claimed);
                    if alive && let Ok(key) = NearKey::of(peek) {
                        if let Some(lane) = engine.lanes.get_mut(peek.lane()) {
                            lane.note_limbo(&key);
                        }
                        let suspect = peek.is_lost();
                        moving.push(Moving {
                            lane: peek.lane(),
                            key,
                            hash,
                            from,
                            suspect,
                            data: data.clone(),
                        });
                    }
                }
                Ok(())
            })?;
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
        let cost = |near: &Near| NEAR_COST + near.data.as_ref().map_or(0, Bytes::len);
        self.window = self.lanes.iter().flat_map(|lane| lane.near.values()).map(cost).sum();
    }

    /// Takes some of the last messages that a lane has in memory, beyond its share.
    pub(in crate::embedded) fn take_tail(
        &mut self,
        number: u32,
        share: usize,
    ) -> Vec<(Moving, Option<Arc<dyn DiskFile>>)> {
        let mut some = Vec::new();
        while some.len() < STEP {
            let Some(lane) = self.lanes.get_mut(number).filter(|lane| lane.near.len() > share) else { break };
            let Some((key, near)) = lane.near.pop_last() else { break };
            lane.note_limbo(&key);
            self.window = self.window.saturating_sub(NEAR_COST + near.data.as_ref().map_or(0, Bytes::len));
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

    pub(in crate::embedded) fn put_back(&mut self, one: Moving) {
        let near = Near { hash: one.hash, place: one.from, data: None, suspect: one.suspect };
        self.add_near(one.lane, one.key, near);
    }
}
