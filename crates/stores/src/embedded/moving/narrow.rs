//! The narrowest buckets into memory. A large one comes a piece at a time, and every other in between: it must not make the
//! next second's messages late.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use duly_core::Timestamp;

use super::{
    super::{
        Limbo, Shared,
        engine::{Buffer, Engine},
        entry::Peek,
    },
    blocked::is_unread,
    garbled,
};

/// A large bucket on its way into memory.
struct Arrival {
    start: Timestamp,
    tables: VecDeque<u32>,
    /// Where to go on in the first of them.
    from: u64,
}

impl Shared {
    /// Brings the narrow buckets that have come near into memory.
    pub(in crate::embedded) fn open_narrow(&self) -> io::Result<()> {
        let mut large = VecDeque::new();
        let opened = self.open_narrow_ones(&mut large);
        let mut engine = self.engine();
        (engine.arriving, engine.arriving_soon) = (None, None);
        drop(engine);
        self.moved.notify_waiters();
        opened
    }

    fn open_narrow_ones(&self, large: &mut VecDeque<Arrival>) -> io::Result<()> {
        loop {
            while self.open_first(large)? {}
            // One piece of one of them, then what has come near meanwhile.
            let Some(mut arrival) = large.pop_front() else { return Ok(()) };
            if self.arrive_piece(&mut arrival)? {
                large.push_back(arrival);
            }
            self.engine().arriving = large.iter().map(|arrival| arrival.start).min();
            self.note_progress();
            self.moved.notify_waiters();
        }
    }

    /// Opens the first narrow bucket that has come near: whole, or if it is large only what is in memory of it.
    fn open_first(&self, large: &mut VecDeque<Arrival>) -> io::Result<bool> {
        let Some(slot) = self.behind(0) else { return Ok(false) };
        let start = slot.start();
        let limbo = self.limbo();
        let (bucket, is_large) = {
            let mut engine = self.engine();
            engine.opened.0[0] = engine.opened.0[0].max(slot.number + 1);
            let Some(bucket) = engine.buckets.remove(&slot) else { return Ok(true) };
            engine.buffered = engine.buffered.saturating_sub(bucket.buffer.bytes.len());
            let is_large = engine.is_large(&bucket.tables);
            engine.arriving = Some(engine.arriving.map_or(start, |known| known.min(start)));
            engine.arriving_soon = Some(start).filter(|_| !is_large);
            (bucket, is_large)
        };
        self.arrive_buffer(&limbo, bucket.buffer)?;
        drop(limbo);
        let mut arrival = Arrival { start, tables: bucket.tables.into(), from: 0 };
        if is_large {
            large.push_back(arrival);
        } else {
            while self.arrive_piece(&mut arrival)? {}
        }
        let mut engine = self.engine();
        engine.arriving = large.iter().map(|arrival| arrival.start).min();
        engine.arriving_soon = None;
        drop(engine);
        self.note_progress();
        self.moved.notify_waiters();
        Ok(true)
    }

    /// Brings in the next piece of a bucket; `false` if there was none.
    fn arrive_piece(&self, arrival: &mut Arrival) -> io::Result<bool> {
        while let Some(table) = arrival.tables.front() {
            match self.next_chunk(*table, &mut arrival.from) {
                Ok(Some((bytes, entries))) => {
                    self.arrive(&self.limbo(), &bytes, entries)?;
                    return Ok(true);
                }
                Err(error) if is_unread(&error) => self.block(*table, &error)?,
                done => drop(done?),
            }
            arrival.tables.pop_front();
            arrival.from = 0;
        }
        Ok(false)
    }

    fn arrive_buffer(&self, limbo: &Limbo<'_>, buffer: Buffer) -> io::Result<()> {
        let bytes = Bytes::from(buffer.bytes);
        let mut at = 0;
        let mut entries = Vec::with_capacity(buffer.from.len());
        for (hash, from) in buffer.from {
            let Ok(peek) = Peek::framed(&bytes[at..]) else { return Err(garbled(from.file, from.offset())) };
            entries.push((hash, from, at..at + peek.len()));
            at += peek.len();
        }
        self.arrive(limbo, &bytes, entries)
    }
}

impl Engine {
    /// Whether the tables of a bucket are more than is read at once: then claims do not wait for it.
    pub(super) fn is_large(&self, tables: &[u32]) -> bool {
        let len = |number: &u32| self.tables.get(number).map_or(0, |table| table.data_len);
        tables.iter().map(len).sum::<u64>() > self.options.chunk_bytes
    }
}
