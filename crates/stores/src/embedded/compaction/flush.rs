//! Flushes buffers to tables.

use std::io;

use super::{
    super::{
        SharedEngine,
        buffer::Buffer,
        disk::beyond_repair,
        engine::Engine,
        entry::Peek,
        index::Position,
        options::STEP,
        table::{KEY_BYTES, KeyRecord, Table, TableKind, check_len, write_key},
        wheel::Slot,
    },
    garbled,
};

/// A write of at least so many bytes is synced at once.
const SYNC_BYTES: usize = 256 << 10;

impl SharedEngine {
    /// Makes the files of a new table.
    pub(in crate::embedded) fn make_table(&self, kind: TableKind) -> io::Result<u32> {
        let number = self.engine().sequences.file_number();
        let data = self.disk.open(&self.dir.join(format!("table-{number}.data")))?;
        let keys = self.disk.open(&self.dir.join(format!("table-{number}.keys")))?;
        self.engine().tables.insert(Table::new(number, kind, data, keys));
        Ok(number)
    }

    /// Writes what the buffers hold into tables, all of them or only the fuller ones.
    pub(in crate::embedded) fn flush(&self, all: bool) -> io::Result<()> {
        let slots = self.engine().buckets.to_flush(all);
        slots.into_iter().try_for_each(|slot| self.flush_bucket(slot))
    }

    pub(in crate::embedded) fn flush_bucket(&self, slot: Slot) -> io::Result<()> {
        let _moves = self.lock_moves();
        let known = {
            let mut engine = self.engine();
            let Some(bucket) = engine.buckets.get(slot).filter(|bucket| !bucket.buffer().is_empty()) else {
                return Ok(());
            };
            let more = bucket.buffer().len() as u64;
            let has_room = |table: &Table| {
                let len = table.data_len();
                !table.is_sealed() && (len == 0 || len + more <= engine.options.table_bytes)
            };
            let last = bucket.last_table().filter(|number| engine.tables.get(*number).is_some_and(has_room));
            if let Some(table) = last.and_then(|number| engine.tables.get_mut(number)) {
                table.begin_write();
            }
            last
        };
        let number = match known {
            Some(number) => number,
            None => {
                let number = self.make_table(TableKind::bucket(slot))?;
                self.engine().buckets.add_table(slot, number);
                number
            }
        };
        let buffer = self.engine().buckets.take_buffer(slot);
        match self.write_buffer(number, &buffer, Some(slot)) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Nothing is lost: the journal has it all. The next flush tries again.
                let mut engine = self.engine();
                engine.buckets.put_buffer_back(slot, buffer);
                if known.is_none() {
                    engine.buckets.remove_table(slot, number);
                }
                if let Some(table) = engine.tables.get_mut(number) {
                    table.abort_write();
                    engine.retire_if_empty(number);
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
        let _moves = self.lock_moves();
        let (buffer, known) = {
            let mut engine = self.engine();
            if engine.dead_buffer.is_empty() {
                return Ok(());
            }
            let chunk = engine.options.chunk_bytes;
            let last = engine.tables.iter_mut().find(|table| {
                let is_open = table.data_len() < chunk && !table.is_sealed();
                table.kind() == TableKind::Dead && is_open && table.live() > 0
            });
            let known = last.map(|table| {
                table.begin_write();
                table.number()
            });
            (std::mem::take(&mut engine.dead_buffer), known)
        };
        let written = match known {
            Some(number) => self.write_buffer(number, &buffer, None),
            None => self.make_table(TableKind::Dead).and_then(|number| {
                self.write_buffer(number, &buffer, None).inspect_err(|_| self.unmake_table(number))
            }),
        };
        if written.is_err() {
            let mut engine = self.engine();
            let newer = std::mem::replace(&mut engine.dead_buffer, buffer);
            engine.dead_buffer.append(&newer);
        }
        written
    }

    /// Appends a buffer to a table, and points the index there for entries that are still alive.
    pub(in crate::embedded) fn write_buffer(
        &self,
        number: u32,
        buffer: &Buffer,
        slot: Option<Slot>,
    ) -> io::Result<()> {
        let (data, keys, base, keys_base) = {
            let engine = self.engine();
            let Some(table) = engine.tables.get(number) else { return Ok(()) };
            let (data, keys) = (table.data().clone(), table.keys().file().clone());
            (data, keys, table.data_len(), table.keys().len())
        };
        check_len(number, base + buffer.len() as u64)?;
        data.write_at(buffer.bytes(), base)?;
        self.steps.finish_step();
        if buffer.len() >= SYNC_BYTES {
            // Often and a little at a time: one large sync would delay the journal's syncs.
            data.sync().map_err(beyond_repair)?;
        }
        // The keys are written before the index is changed: if there is no room for them, nothing has happened.
        let mut records = Vec::with_capacity(buffer.from().len() * KEY_BYTES);
        let mut keyed = Vec::with_capacity(buffer.from().len());
        let mut at = 0usize;
        for some in buffer.from().chunks(STEP) {
            let engine = self.engine();
            for (hash, from) in some {
                let Ok(peek) = Peek::framed(&buffer.bytes()[at..]) else {
                    return Err(garbled(number, base + at as u64));
                };
                let position = Position::new(number, base + at as u64);
                at += peek.len();
                keyed.push(engine.index.marks(*hash, *from).is_some());
                if keyed.last() == Some(&true) {
                    write_key(KeyRecord::of(peek, *hash, position.off8), &mut records);
                }
            }
        }
        keys.write_at(&records, keys_base)?;
        at = 0;
        for (some, keyed) in buffer.from().chunks(STEP).zip(keyed.chunks(STEP)) {
            let mut engine = self.engine();
            for ((hash, from), keyed) in some.iter().zip(keyed) {
                let Ok(peek) = Peek::framed(&buffer.bytes()[at..]) else {
                    return Err(garbled(number, base + at as u64));
                };
                let position = Position::new(number, base + at as u64);
                at += peek.len();
                if *keyed && engine.index.marks(*hash, *from).is_none() {
                    engine.tables.add_tombstone(position);
                }
                if let Some(marks) = engine.index.replace(*hash, *from, position, None) {
                    if marks.claimed {
                        engine.in_flight.moved(*from, position);
                    }
                    engine.forget_position(*from, peek.len() as u64);
                    engine.tables.add_live(number, peek.len() as u64);
                } else if let Some(slot) = slot
                    && engine.tables.slot(from.file).is_some_and(|old| old != slot)
                {
                    // It ended on its way from a wider bucket: that one was uncounted, and this one still counts it.
                    engine.buckets.uncount(slot, peek.ready());
                }
            }
        }
        self.finish_table(number, at as u64, &records);
        Ok(())
    }

    /// Removes a new table that could not be written.
    pub(in crate::embedded) fn unmake_table(&self, number: u32) {
        self.engine().tables.remove(number);
        for name in [format!("table-{number}.data"), format!("table-{number}.keys")] {
            // A file that stays is an orphan, and is removed at the next opening.
            let _ = self.disk.remove(&self.dir.join(name));
        }
    }

    pub(in crate::embedded) fn finish_table(&self, number: u32, data: u64, keys: &[u8]) {
        let mut engine = self.engine();
        let Some(table) = engine.tables.get_mut(number) else { return };
        table.finish_write(data, keys);
        engine.retire_if_empty(number);
        drop(engine);
        self.note_progress();
        self.room.notify_waiters();
    }
}

impl Engine {
    pub(in crate::embedded) fn may_buffer_more(&self) -> bool {
        self.buckets.buffered() < 4 * self.options.buffer_bytes
    }
}
