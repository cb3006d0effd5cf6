//! How messages move on disk: buffers into buckets, wide buckets into narrow ones, near ones into memory, and what
//! nobody takes into runs. All of it happens on the keeper's thread, from what the journal already made durable.

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{
    Shared,
    disk::{DiskFile, beyond_repair},
    engine::Buffer,
    entry::Peek,
    index::{Marks, Place},
    keeper::is_full,
    lanes::{Extent, NearKey},
    options::{NEAR_COST, STEP},
    table::{KeyRecord, Table, TableKind, read_all, read_entry, write_key},
    wheel::{LEVELS, Route, Slot},
};

/// What is written at once beyond this is synced at once.
const SYNC_BYTES: usize = 256 << 10;

/// An entry on its way to a run.
pub(super) struct Moving {
    pub(super) lane: u32,
    pub(super) key: NearKey,
    pub(super) hash: u64,
    pub(super) from: Place,
    pub(super) data: Bytes,
    pub(super) suspect: bool,
}

/// Whether the entries of a run are also in memory, or must be read from it when their turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Disk,
    Memory,
}

fn garbled(table: u32, at: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the entry at byte {at} of table {table} does not match its checksum"),
    )
}

impl Shared {
    /// Makes the files of a new table.
    fn make_table(&self, kind: TableKind) -> io::Result<u32> {
        let number = self.engine().file_number();
        let data = self.disk.open(&self.dir.join(format!("table-{number}.data")))?;
        let keys = self.disk.open(&self.dir.join(format!("table-{number}.keys")))?;
        let mut table = Table::new(number, kind, data, keys);
        table.busy = true;
        self.engine().tables.insert(number, table);
        Ok(number)
    }

    /// Writes what the buffers hold into tables, all of them or only the fuller ones.
    pub(super) fn flush(&self, all: bool) -> io::Result<()> {
        let slots: Vec<Slot> = {
            let engine = self.engine();
            let mean = engine.buffered / engine.buckets.len().max(1) / 2;
            let full = |bytes: usize| bytes > 0 && (all || bytes >= mean);
            engine
                .buckets
                .iter()
                .filter(|(_, bucket)| full(bucket.buffer.bytes.len()))
                .map(|(slot, _)| *slot)
                .collect()
        };
        slots.into_iter().try_for_each(|slot| self.flush_bucket(slot))
    }

    fn flush_bucket(&self, slot: Slot) -> io::Result<()> {
        let known = {
            let mut engine = self.engine();
            let Some(bucket) = engine.buckets.get(&slot).filter(|bucket| !bucket.buffer.from.is_empty())
            else {
                return Ok(());
            };
            let last = bucket.tables.last().copied().filter(|_| !bucket.sealed);
            if let Some(table) = last.and_then(|number| engine.tables.get_mut(&number)) {
                table.busy = true;
            }
            last
        };
        let number = match known {
            Some(number) => number,
            None => {
                let number = self.make_table(TableKind::bucket(slot))?;
                if let Some(bucket) = self.engine().buckets.get_mut(&slot) {
                    bucket.tables.push(number);
                    bucket.sealed = false;
                }
                number
            }
        };
        let buffer = {
            let mut engine = self.engine();
            let buffer = engine
                .buckets
                .get_mut(&slot)
                .map(|bucket| std::mem::take(&mut bucket.buffer))
                .unwrap_or_default();
            engine.buffered = engine.buffered.saturating_sub(buffer.bytes.len());
            buffer
        };
        match self.write_buffer(number, &buffer, Some(slot)) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Nothing is lost: the journal has it all. Try again when there is room.
                let mut engine = self.engine();
                engine.buffered += buffer.bytes.len();
                if let Some(bucket) = engine.buckets.get_mut(&slot) {
                    let newer = std::mem::replace(&mut bucket.buffer, buffer);
                    bucket.buffer.bytes.extend_from_slice(&newer.bytes);
                    bucket.buffer.from.extend_from_slice(&newer.from);
                    bucket.tables.retain(|table| known.is_some() || *table != number);
                }
                if let Some(table) = engine.tables.get_mut(&number) {
                    table.busy = false;
                    if table.live == 0 {
                        engine.bury(number);
                    }
                }
                drop(engine);
                if known.is_none() {
                    self.unmake_table(number);
                }
                Err(error)
            }
        }
    }

    /// Writes the dead letters that wait to be written.
    pub(super) fn flush_dead(&self) -> io::Result<()> {
        let (buffer, known) = {
            let mut engine = self.engine();
            if engine.dead.from.is_empty() {
                return Ok(());
            }
            let chunk = engine.options.chunk_bytes;
            let last = engine.tables.values_mut().find(|table| {
                table.kind == TableKind::Dead && table.data_len < chunk && !table.sealed && table.live > 0
            });
            let known = last.map(|table| {
                table.busy = true;
                table.number
            });
            (std::mem::take(&mut engine.dead), known)
        };
        let written = match known {
            Some(number) => self.write_buffer(number, &buffer, None),
            None => self.make_table(TableKind::Dead).and_then(|number| {
                self.write_buffer(number, &buffer, None).inspect_err(|_| self.unmake_table(number))
            }),
        };
        if written.is_err() {
            let mut engine = self.engine();
            let newer = std::mem::replace(&mut engine.dead, buffer);
            engine.dead.bytes.extend_from_slice(&newer.bytes);
            engine.dead.from.extend_from_slice(&newer.from);
        }
        written
    }

    /// Appends a buffer to a table and moves the places of what is still alive.
    fn write_buffer(&self, number: u32, buffer: &Buffer, slot: Option<Slot>) -> io::Result<()> {
        let (data, keys, base, keys_base) = {
            let engine = self.engine();
            let Some(table) = engine.tables.get(&number) else { return Ok(()) };
            (table.data.clone(), table.keys.clone(), table.data_len, table.keys_len)
        };
        data.write_at(&buffer.bytes, base)?;
        if buffer.bytes.len() >= SYNC_BYTES {
            // A little at a time: one large sync would make the journal's wait.
            data.sync().map_err(beyond_repair)?;
        }
        // The keys are written before anything is moved: if there is no room for them, nothing has happened.
        let mut records = Vec::with_capacity(buffer.from.len() * super::table::KEY_BYTES);
        let mut keyed = Vec::with_capacity(buffer.from.len());
        let mut at = 0usize;
        for some in buffer.from.chunks(STEP) {
            let engine = self.engine();
            for (hash, from) in some {
                let Ok(peek) = Peek::framed(&buffer.bytes[at..]) else {
                    return Err(garbled(number, base + at as u64));
                };
                let place = Place::new(number, base + at as u64);
                at += peek.len();
                keyed.push(engine.index.marks(*hash, *from).is_some());
                if keyed.last() == Some(&true) {
                    let key =
                        KeyRecord { hash: *hash, ready: peek.ready(), off8: place.off8, lane: peek.lane() };
                    write_key(key, &mut records);
                }
            }
        }
        keys.write_at(&records, keys_base)?;
        at = 0;
        for (some, keyed) in buffer.from.chunks(STEP).zip(keyed.chunks(STEP)) {
            let mut engine = self.engine();
            for ((hash, from), keyed) in some.iter().zip(keyed) {
                let Ok(peek) = Peek::framed(&buffer.bytes[at..]) else {
                    return Err(garbled(number, base + at as u64));
                };
                let place = Place::new(number, base + at as u64);
                at += peek.len();
                if *keyed && engine.index.marks(*hash, *from).is_none() {
                    engine.gone_on_the_way(place);
                }
                if let Some(marks) = engine.index.replace(*hash, *from, place, None) {
                    if marks.claimed {
                        engine.flight.moved(*from, place);
                    }
                    engine.leave(*from, peek.len() as u64);
                    if let Some(table) = engine.tables.get_mut(&number) {
                        table.live += 1;
                        table.live_bytes += peek.len() as u64;
                    }
                } else if let Some(slot) = slot {
                    // Gone while it was on its way from a wider bucket: only here it is still counted.
                    let wider = engine
                        .tables
                        .get(&from.file)
                        .and_then(|table| table.kind.slot())
                        .is_some_and(|old| old != slot);
                    if wider && let Some(bucket) = engine.buckets.get_mut(&slot) {
                        let part = &mut bucket.parts[slot.part(peek.ready())];
                        *part = part.saturating_sub(1);
                    }
                }
            }
        }
        self.finish_table(number, at as u64, &records);
        Ok(())
    }

    /// A new table could not be written: nothing is in it.
    fn unmake_table(&self, number: u32) {
        self.engine().tables.remove(&number);
        for name in [format!("table-{number}.data"), format!("table-{number}.keys")] {
            // What stays is a stranger at the next opening, and is removed then.
            let _ = self.disk.remove(&self.dir.join(name));
        }
    }

    fn finish_table(&self, number: u32, data: u64, keys: &[u8]) {
        let mut engine = self.engine();
        let Some(table) = engine.tables.get_mut(&number) else { return };
        table.data_len += data;
        table.added_keys(keys);
        table.dirty = true;
        table.busy = false;
        if table.live == 0 {
            engine.bury(number);
        }
        drop(engine);
        self.room.notify_waiters();
    }

    /// Opens the buckets that have come near, from the widest to the narrowest.
    pub(super) fn open_buckets(&self) -> io::Result<()> {
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
                    engine.rearrange(&bucket.buffer);
                    bucket.tables
                };
                let split = self.split_all(tables);
                let mut engine = self.engine();
                engine.splitting = None;
                if let Err((_, left)) = &split {
                    // Begun, not ended: what is moved already is passed over the next time.
                    let bucket = engine.buckets.entry(slot).or_default();
                    bucket.tables.extend(left);
                    bucket.sealed = true;
                }
                drop(engine);
                self.moved.notify_waiters();
                split.map_err(|(error, _)| error)?;
            }
        }
        self.open_narrow()?;
        let mut engine = self.engine();
        let wanted = engine.opened.wanted(engine.now.wall());
        if !engine.buckets.keys().any(|slot| slot.number < wanted.0[usize::from(slot.level)]) {
            engine.opened = wanted;
        }
        Ok(())
    }

    /// The first bucket of the level that should be open and is not.
    fn behind(&self, level: usize) -> Option<Slot> {
        let engine = self.engine();
        let wanted = engine.opened.wanted(engine.now.wall()).0[level];
        let level = level as u8;
        let mut range = engine.buckets.range(Slot { level, number: 0 }..Slot { level, number: wanted });
        range.next().map(|(slot, _)| *slot)
    }

    /// Brings the narrow buckets that have come near into memory.
    fn open_narrow(&self) -> io::Result<()> {
        while let Some(slot) = self.behind(0) {
            let bucket = {
                let mut engine = self.engine();
                engine.opened.0[0] = engine.opened.0[0].max(slot.number + 1);
                let Some(bucket) = engine.buckets.remove(&slot) else { continue };
                engine.buffered = engine.buffered.saturating_sub(bucket.buffer.bytes.len());
                engine.arriving = Some(slot.start());
                bucket
            };
            let arrived = self.arrive_buffer(bucket.buffer).and_then(|()| {
                bucket.tables.iter().try_for_each(|table| {
                    self.each_chunk(*table, |chunk, entries| self.arrive(chunk, entries))
                })
            });
            self.engine().arriving = None;
            self.moved.notify_waiters();
            arrived?;
        }
        Ok(())
    }

    fn arrive_buffer(&self, buffer: Buffer) -> io::Result<()> {
        let bytes = Bytes::from(buffer.bytes);
        let mut at = 0;
        let mut entries = Vec::with_capacity(buffer.from.len());
        for (hash, from) in buffer.from {
            let Ok(peek) = Peek::framed(&bytes[at..]) else { return Err(garbled(from.file, from.offset())) };
            entries.push((hash, from, at..at + peek.len()));
            at += peek.len();
        }
        self.arrive(&bytes, entries)
    }

    /// Reads a table piece by piece.
    fn each_chunk(
        &self,
        table: u32,
        mut each: impl FnMut(&Bytes, Vec<(u64, Place, std::ops::Range<usize>)>) -> io::Result<()>,
    ) -> io::Result<()> {
        let found = {
            let engine = self.engine();
            let chunk = engine.options.chunk_bytes;
            engine.tables.get(&table).map(|known| (known.data.clone(), known.data_len, chunk))
        };
        let Some((file, len, chunk)) = found else { return Ok(()) };
        let mut from = 0;
        while from < len {
            let (bytes, entries) = read_chunk(&*file, table, from, len, chunk)?;
            from += entries.last().map_or(0, |(_, _, range)| range.end as u64);
            each(&bytes, entries)?;
        }
        Ok(())
    }

    /// Messages have come near: into memory if there is room, else into a run.
    fn arrive(&self, bytes: &Bytes, entries: Vec<(u64, Place, std::ops::Range<usize>)>) -> io::Result<()> {
        let fits = {
            let engine = self.engine();
            engine.window + bytes.len() + entries.len() * NEAR_COST <= engine.options.window_bytes
        };
        if !fits {
            match self.arrive_on_disk(bytes, &entries) {
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
                    engine.draw_near(*hash, *place, peek, fits.then(|| bytes.slice(range.clone())));
                }
            }
        }
        Ok(())
    }

    fn arrive_on_disk(
        &self,
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
        self.write_run(&mut moving, Source::Disk)
    }

    /// Splits one table after another; if one fails, says which are left.
    pub(super) fn split_all(&self, tables: Vec<u32>) -> Result<(), (io::Error, Vec<u32>)> {
        for (at, table) in tables.iter().enumerate() {
            self.split(*table).map_err(|error| (error, tables[at..].to_vec()))?;
        }
        Ok(())
    }

    /// Moves what is alive in a table to where its time says now: to narrower buckets, or near.
    pub(super) fn split(&self, table: u32) -> io::Result<()> {
        self.each_chunk(table, |bytes, entries| {
            let mut near = Vec::new();
            for some in entries.chunks(STEP) {
                let mut engine = self.engine();
                for (hash, place, range) in some {
                    let entry = &bytes[range.clone()];
                    if engine.index.marks(*hash, *place).is_none() {
                        continue;
                    }
                    let Ok(peek) = Peek::framed(entry) else { continue };
                    if peek.is_dead() {
                        engine.dead.push(*hash, *place, entry);
                        continue;
                    }
                    match engine.opened.route(peek.ready()) {
                        Route::Near => near.push((*hash, *place, range.clone())),
                        Route::Bucket(slot) => {
                            let same =
                                engine.tables.get(&table).and_then(|table| table.kind.slot()) == Some(slot);
                            let bucket = engine.buckets.entry(slot).or_default();
                            if !same {
                                bucket.parts[slot.part(peek.ready())] += 1;
                            }
                            bucket.buffer.push(*hash, *place, entry);
                            engine.buffered += entry.len();
                        }
                    }
                }
            }
            if !near.is_empty() {
                self.arrive(bytes, near)?;
            }
            if self.engine().wants_flush() {
                match self.flush(false) {
                    // A little more stays in memory on a full disk, so that what is due comes.
                    Err(error) if is_full(&error) && self.engine().may_buffer_more() => {}
                    flushed => flushed?,
                }
            }
            // A long split must not make the next second's messages late.
            self.open_narrow()?;
            self.moved.notify_waiters();
            Ok(())
        })
    }

    /// Writes entries as a run, in order of lane and release, and lets the lanes know.
    fn write_run(&self, moving: &mut [Moving], from: Source) -> io::Result<()> {
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
    fn new_run<'a>(&self, moving: impl Iterator<Item = &'a Moving> + Clone) -> io::Result<(u32, Vec<u8>)> {
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
            let key = KeyRecord { hash: one.hash, ready: one.key.ready, off8: place.off8, lane: one.lane };
            write_key(key, &mut records);
        }
        let written = data.write_at(&bytes, 0).and_then(|()| keys.write_at(&records, 0));
        written.inspect_err(|_| self.unmake_table(number))?;
        Ok((number, records))
    }

    /// Moves the tails of the fullest lanes from memory to a run.
    pub(super) fn spill(&self) -> io::Result<()> {
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
                    written = self.write_run(&mut moving, Source::Disk);
                    if written.is_ok() {
                        moving.clear();
                    }
                }
            }
        }
        let written = written.and_then(|()| self.write_run(&mut moving, Source::Disk));
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
        drop(engine);
        self.moved.notify_waiters();
        written
    }

    /// Merges small runs, so that their number stays small whatever trickles in.
    pub(super) fn merge_runs(&self, runs_max: usize) -> io::Result<()> {
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
        let written = self.write_run(&mut moving, Source::Disk);
        let mut engine = self.engine();
        for number in lanes {
            if let Some(lane) = engine.lanes.get_mut(number) {
                lane.limbo = None;
            }
        }
        written
    }

    /// Moves what is near or claimed and lies in journal segments before `segment` into a run, so that they can go.
    pub(super) fn relocate(&self, segment: u32) -> io::Result<()> {
        let lanes = self.engine().lanes.len() as u32;
        let mut moving = Vec::new();
        for number in 0..lanes {
            let mut after: Option<NearKey> = None;
            loop {
                let (some, last) = self.engine().near_in_journal(number, segment, after.as_ref());
                moving.extend(some);
                match last {
                    Some(key) => after = Some(key),
                    None => break,
                }
            }
        }
        self.write_parked(moving)?;
        let claimed = self.engine().claimed_in_journal(segment);
        let mut moving = Vec::new();
        for (token, lane, hash, from, file) in claimed {
            if let Some(Ok(data)) = file.map(|file| read_entry(&*file, from))
                && let Ok(key) = Peek::framed(&data).and_then(NearKey::of)
            {
                moving
                    .push((token, Moving { lane, key, hash, from, suspect: false, data: Bytes::from(data) }));
            }
        }
        moving.sort_unstable_by(|(_, a), (_, b)| (a.lane, &a.key).cmp(&(b.lane, &b.key)));
        self.write_claimed(moving)
    }

    /// Writes near messages to a run without taking them from memory.
    fn write_parked(&self, moving: Vec<(Moving, Option<Arc<dyn DiskFile>>)>) -> io::Result<()> {
        let mut loaded = Vec::with_capacity(moving.len());
        for (one, file) in moving {
            if !one.data.is_empty() {
                loaded.push(one);
            } else if let Some(Ok(data)) = file.map(|file| read_entry(&*file, one.from)) {
                loaded.push(Moving { data: Bytes::from(data), ..one });
            }
        }
        self.write_run(&mut loaded, Source::Memory)
    }

    /// Writes claimed messages to a run; they stay claimed.
    fn write_claimed(&self, moving: Vec<(u64, Moving)>) -> io::Result<()> {
        if moving.is_empty() {
            return Ok(());
        }
        let (number, records) = self.new_run(moving.iter().map(|(_, one)| one))?;
        let mut offset = 0;
        for some in moving.chunks(STEP) {
            let mut engine = self.engine();
            for (token, one) in some {
                let place = Place::new(number, offset);
                let len = one.data.len() as u64;
                offset += len;
                let held = engine.flight.get_mut(*token).filter(|held| held.place == one.from);
                if held.map(|held| held.place = place).is_none() {
                    engine.gone_on_the_way(place);
                    continue;
                }
                engine.index.replace(one.hash, one.from, place, None);
                engine.leave(one.from, len);
                if let Some(table) = engine.tables.get_mut(&number) {
                    table.live += 1;
                    table.live_bytes += len;
                }
            }
        }
        self.finish_table(number, offset, &records);
        Ok(())
    }
}

type Chunk = (Bytes, Vec<(u64, Place, std::ops::Range<usize>)>);

/// Reads whole entries of a table from `from` on: about `chunk` bytes, at least one entry.
fn read_chunk(file: &dyn DiskFile, table: u32, from: u64, len: u64, chunk: u64) -> io::Result<Chunk> {
    let mut want = chunk.min(len - from);
    loop {
        let bytes = Bytes::from(read_all(file, from, want)?);
        let mut entries = Vec::new();
        let mut at = 0;
        while let Ok(peek) = Peek::checked(&bytes[at..]) {
            let Ok(key) = NearKey::of(peek) else { return Err(garbled(table, from + at as u64)) };
            entries.push((key.id.hash64(), Place::new(table, from + at as u64), at..at + peek.len()));
            at += peek.len();
        }
        if !entries.is_empty() {
            return Ok((bytes, entries));
        }
        let need = Peek::length(&bytes).map_err(|_| garbled(table, from))? as u64;
        if need <= want || need > len - from {
            return Err(garbled(table, from));
        }
        want = need;
    }
}

/// The marks of what lies in a run and waits.
const IN_RUN: Marks = Marks { claimed: false, near: true };

impl super::engine::Engine {
    fn may_buffer_more(&self) -> bool {
        self.buffered < 4 * self.options.buffer_bytes
    }

    pub(super) fn wants_flush(&self) -> bool {
        self.buffered > self.options.buffer_bytes
    }

    /// Routes the entries of a bucket's buffer again, after its bucket was opened.
    fn rearrange(&mut self, buffer: &Buffer) {
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

    /// What was written at `place` of a table is not alive any more, or not there.
    fn gone_on_the_way(&mut self, place: Place) {
        if let Some(table) = self.tables.get_mut(&place.file) {
            table.gone_total += 1;
            table.gone.push(place.off8);
        }
    }

    /// The entry now lies in a run. `false` if it is gone, or claimed in the meantime and stays where it was.
    fn settle_in_run(&mut self, one: &Moving, place: Place) -> bool {
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

    /// Takes some of the last messages that a lane has in memory, beyond its share.
    fn take_tail(&mut self, number: u32, share: usize) -> Vec<(Moving, Option<Arc<dyn DiskFile>>)> {
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

    fn put_back(&mut self, one: Moving) {
        let near = super::lanes::Near { hash: one.hash, place: one.from, data: None, suspect: one.suspect };
        if let Some(lane) = self.lanes.get_mut(one.lane) {
            lane.near.insert(one.key, near);
            self.window += NEAR_COST;
        }
    }

    /// Some near messages of a lane that lie in journal segments before `segment`, and where to go on.
    #[expect(clippy::type_complexity, reason = "a pair of what was found and where to go on")]
    fn near_in_journal(
        &self,
        number: u32,
        segment: u32,
        after: Option<&NearKey>,
    ) -> (Vec<(Moving, Option<Arc<dyn DiskFile>>)>, Option<NearKey>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(lane) = self.lanes.get(number) else { return (Vec::new(), None) };
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        let mut found = Vec::new();
        for (seen, (key, near)) in lane.near.range((from, Unbounded)).enumerate() {
            if seen == STEP {
                return (found, last);
            }
            last = Some(key.clone());
            if near.place.file < segment && self.journal.has(near.place.file) {
                let data = near.data.clone().unwrap_or_default();
                let file = if data.is_empty() { self.file(near.place) } else { None };
                let (key, hash, from, suspect) = (key.clone(), near.hash, near.place, near.suspect);
                found.push((Moving { lane: number, key, hash, from, suspect, data }, file));
            }
        }
        (found, None)
    }

    /// The claimed messages that lie in journal segments before `segment`.
    #[expect(clippy::type_complexity, reason = "a row of facts that is taken apart at once")]
    fn claimed_in_journal(&self, segment: u32) -> Vec<(u64, u32, u64, Place, Option<Arc<dyn DiskFile>>)> {
        self.flight
            .iter()
            .filter(|(_, held)| held.place.file < segment && self.journal.has(held.place.file))
            .map(|(token, held)| (token, held.lane, held.hash, held.place, self.file(held.place)))
            .collect()
    }
}
