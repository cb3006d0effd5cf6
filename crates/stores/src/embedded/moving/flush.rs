//! Buffers into tables.

use std::io;

use super::{
    super::{
        Shared,
        disk::beyond_repair,
        engine::{Buffer, Engine},
        entry::Peek,
        index::Place,
        options::STEP,
        table::{KEY_BYTES, KeyRecord, Table, TableKind, check_len, write_key},
        wheel::Slot,
    },
    garbled,
};

/// What is written at once beyond this is synced at once.
const SYNC_BYTES: usize = 256 << 10;

impl Shared {
    /// Makes the files of a new table.
    pub(in crate::embedded) fn make_table(&self, kind: TableKind) -> io::Result<u32> {
        let number = self.engine().file_number();
        let data = self.disk.open(&self.dir.join(format!("table-{number}.data")))?;
        let keys = self.disk.open(&self.dir.join(format!("table-{number}.keys")))?;
        let mut table = Table::new(number, kind, data, keys);
        table.busy = true;
        self.engine().tables.insert(number, table);
        Ok(number)
    }

    /// Writes what the buffers hold into tables, all of them or only the fuller ones.
    pub(in crate::embedded) fn flush(&self, all: bool) -> io::Result<()> {
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

    pub(in crate::embedded) fn flush_bucket(&self, slot: Slot) -> io::Result<()> {
        let _limbo = self.limbo();
        let known = {
            let mut engine = self.engine();
            let Some(bucket) = engine.buckets.get(&slot).filter(|bucket| !bucket.buffer.from.is_empty())
            else {
                return Ok(());
            };
            let more = bucket.buffer.bytes.len() as u64;
            let has_room = |table: &Table| {
                !table.sealed && (table.data_len == 0 || table.data_len + more <= engine.options.table_bytes)
            };
            let last = bucket
                .tables
                .last()
                .copied()
                .filter(|number| !bucket.sealed && engine.tables.get(number).is_some_and(has_room));
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
    pub(in crate::embedded) fn flush_dead(&self) -> io::Result<()> {
        let _limbo = self.limbo();
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
    pub(in crate::embedded) fn write_buffer(
        &self,
        number: u32,
        buffer: &Buffer,
        slot: Option<Slot>,
    ) -> io::Result<()> {
        let (data, keys, base, keys_base) = {
            let engine = self.engine();
            let Some(table) = engine.tables.get(&number) else { return Ok(()) };
            (table.data.clone(), table.keys.clone(), table.data_len, table.keys_len)
        };
        check_len(number, base + buffer.bytes.len() as u64)?;
        data.write_at(&buffer.bytes, base)?;
        if buffer.bytes.len() >= SYNC_BYTES {
            // A little at a time: one large sync would make the journal's wait.
            data.sync().map_err(beyond_repair)?;
        }
        // The keys are written before anything is moved: if there is no room for them, nothing has happened.
        let mut records = Vec::with_capacity(buffer.from.len() * KEY_BYTES);
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
                    write_key(KeyRecord::of(peek, *hash, place.off8), &mut records);
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
    pub(in crate::embedded) fn unmake_table(&self, number: u32) {
        self.engine().tables.remove(&number);
        for name in [format!("table-{number}.data"), format!("table-{number}.keys")] {
            // What stays is a stranger at the next opening, and is removed then.
            let _ = self.disk.remove(&self.dir.join(name));
        }
    }

    pub(in crate::embedded) fn finish_table(&self, number: u32, data: u64, keys: &[u8]) {
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
        self.note_progress();
        self.room.notify_waiters();
    }
}

impl Engine {
    pub(in crate::embedded) fn may_buffer_more(&self) -> bool {
        self.buffered < 4 * self.options.buffer_bytes
    }

    pub(in crate::embedded) fn wants_flush(&self) -> bool {
        self.buffered > self.options.buffer_bytes
    }

    /// What was written at `place` of a table is not alive any more, or not there.
    pub(in crate::embedded) fn gone_on_the_way(&mut self, place: Place) {
        if let Some(table) = self.tables.get_mut(&place.file) {
            table.gone_total += 1;
            table.gone.push(place.off8);
        }
    }
}
