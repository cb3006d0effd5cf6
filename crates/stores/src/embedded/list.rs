//! Pages of messages, by `(due, id)`.
//!
//! Entries lie in the order of arrival, so a page is made of the smallest keys of all tables. The key of an entry has its release time
//! and says whether that is its due time, and a bucket holds what is released within its span. So most entries that are not on the
//! page are not read, and of most tables not even the keys.

use std::{io, sync::Arc};

use duly_core::{
    Lane, State, Timestamp,
    store::{Page, Query, StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    buffer::Buffer,
    disk::DiskFile,
    ended::{EndPeek, head_fields},
    engine::Engine,
    entry::{self, ALIGN, Peek},
    index::Position,
    page::PageBuilder,
    table::{Table, TableKind, live_keys, read_all, read_entry},
};

/// How many ends are checked under one hold of the engine's lock.
const ENDS_AT_ONCE: usize = 256;

/// A message that may be on the page.
struct Candidate {
    /// Its due time if `is_exact`; otherwise a time that is not before it.
    due: Timestamp,
    is_exact: bool,
    hash: u64,
    position: Position,
}

/// The parts of a table that a list needs without the engine's lock.
struct Keys {
    number: u32,
    /// Nothing in it is due before; `None` if that is not known.
    from: Option<Timestamp>,
    /// Nothing in it is due after; `None` if that is not known.
    last: Option<Timestamp>,
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl Keys {
    fn of(table: &Table) -> Self {
        let (slot, keys) = (table.kind().slot(), table.keys());
        Self {
            number: table.number(),
            from: slot.filter(|_| keys.all_on_time()).map(|slot| slot.start()),
            last: slot.map(|slot| slot.last()),
            file: keys.file().clone(),
            len: keys.len(),
        }
    }
}

impl SharedEngine {
    /// A page by `(due, id)`.
    pub(super) fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let unavailable = |error: io::Error| {
            StoreError::new(StoreErrorKind::Unavailable, format!("listing failed: {error}; ask again"))
                .with_source(error)
        };
        let mut rows = PageBuilder::new(query);
        match query.state {
            State::Delivered | State::Cancelled => self.list_ended(&mut rows).map_err(unavailable)?,
            _ => self.list_live(&mut rows).map_err(unavailable)?,
        }
        Ok(rows.into_page())
    }

    fn list_live(&self, rows: &mut PageBuilder<'_>) -> io::Result<()> {
        let asked = lane_asked_for(rows.query);
        let lane = asked.as_ref().and_then(|lane| self.engine().lanes.number(lane));
        if asked.is_some() && lane.is_none() {
            return Ok(());
        }
        let (in_memory, tables) = {
            // No message moves while this is taken. What moves later is followed to its new position.
            let _still = self.lock_moves();
            let engine = self.engine();
            (engine.in_memory(rows, lane), engine.tables_for(rows.query.state))
        };
        self.offer_all(rows, in_memory)?;
        for table in tables {
            if !rows.may_hold(table.from, table.last) {
                continue;
            }
            let bytes = read_all(&*table.file, 0, table.len)?;
            let candidates = live_keys(&bytes)
                .filter(|key| lane.is_none_or(|lane| lane == key.lane))
                // A message is never released before it is due.
                .filter(|key| rows.may_hold(key.on_time.then_some(key.ready), Some(key.ready)))
                .map(|key| Candidate {
                    due: key.ready,
                    is_exact: key.on_time,
                    hash: key.hash,
                    position: Position { file: table.number, off8: key.off8 },
                });
            let candidates: Vec<_> = candidates.collect();
            self.offer_all(rows, candidates)?;
        }
        Ok(())
    }

    /// Reads those that may be on the page, the earliest first, and stops where the page ends.
    fn offer_all(&self, rows: &mut PageBuilder<'_>, mut candidates: Vec<Candidate>) -> io::Result<()> {
        candidates.sort_unstable_by_key(|one| (one.is_exact, one.due));
        for one in candidates {
            if one.is_exact && rows.is_past(one.due) {
                break;
            }
            self.offer(rows, one.hash, one.position)?;
        }
        Ok(())
    }

    /// Reads one message and puts it on the page if it belongs there.
    fn offer(&self, rows: &mut PageBuilder<'_>, hash: u64, position: Position) -> io::Result<()> {
        let found = {
            let engine = self.engine();
            match engine.index.marks(hash, position) {
                Some(marks) if engine.is_written(position) => {
                    engine.file(position).map(|file| (marks.claimed, file))
                }
                Some(_) => return Ok(()),
                None => None,
            }
        };
        let read = found.map(|(claimed, file)| (claimed, read_entry(&*file, position)));
        // If it was moved before or while it was read, it is offered from its new position. If it has ended, it has none.
        let moved: Option<Vec<Position>> = {
            let engine = self.engine();
            let still_there = engine.index.marks(hash, position).is_some();
            (!still_there).then(|| engine.index.candidates(hash).map(|(position, _)| position).collect())
        };
        if let Some(positions) = moved {
            return positions.into_iter().try_for_each(|position| self.offer(rows, hash, position));
        }
        let Some((claimed, bytes)) = read else { return Ok(()) };
        let bytes = match bytes {
            // A damaged message is listed once it is a dead letter. It must not hide the others.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(()),
            bytes => bytes?,
        };
        let Ok(peek) = Peek::framed(&bytes) else { return Ok(()) };
        let state = match (peek.is_dead(), claimed) {
            (true, _) => State::Dead,
            (false, true) => State::InFlight,
            (false, false) => State::Pending,
        };
        if state != rows.query.state || !rows.may_take(peek.due(), peek.id_text()) {
            return Ok(());
        }
        let lane = self.engine().lanes.get(peek.lane()).map(|state| state.lane().clone());
        if let Some(lane) = lane
            && let Ok((stored, _)) = entry::decode_head(&bytes, &lane)
        {
            rows.take(stored.into_record(state));
        }
        Ok(())
    }

    /// The oldest slice goes first: what ended first was mostly due first, so that the page is full early.
    fn list_ended(&self, rows: &mut PageBuilder<'_>) -> io::Result<()> {
        let slices = self.engine().ended.numbers();
        for number in slices {
            let Some((file, len, buffer)) = self.engine().ended.content(number) else { continue };
            let mut bytes = read_all(&*file, 0, len)?;
            bytes.extend_from_slice(&buffer);
            let mut ends = Vec::with_capacity(ENDS_AT_ONCE);
            let mut at = 0;
            while let Ok(end) = EndPeek::at(&bytes[at..]) {
                let off8 = (at / ALIGN) as u32;
                at += end.len();
                if end.state() == Some(rows.query.state)
                    && end.key().is_some_and(|(due, id)| rows.may_take(due, id))
                {
                    ends.push((off8, end));
                }
                if ends.len() == ENDS_AT_ONCE {
                    self.engine().offer_ends(rows, number, &ends);
                    ends.clear();
                }
            }
            self.engine().offer_ends(rows, number, &ends);
        }
        Ok(())
    }
}

impl Engine {
    /// The tables in which a message in this state may be, in the order of their times.
    fn tables_for(&self, state: State) -> Vec<Keys> {
        let wanted = |kind: TableKind| match state {
            // Claimed messages are all known in memory.
            State::InFlight => false,
            State::Dead => kind == TableKind::Dead,
            _ => kind != TableKind::Dead,
        };
        let mut tables: Vec<_> =
            self.tables.iter().filter(|table| table.live() > 0 && wanted(table.kind())).collect();
        tables.sort_by_key(|table| table.kind().slot().map_or(Timestamp::default(), |slot| slot.start()));
        tables.into_iter().map(Keys::of).collect()
    }

    /// The messages that are not in a table yet, and those that are claimed.
    fn in_memory(&self, rows: &PageBuilder<'_>, lane: Option<u32>) -> Vec<Candidate> {
        let mut found = Vec::new();
        match rows.query.state {
            State::InFlight => found.extend(self.in_flight.iter().map(|(_, held)| Candidate {
                due: Timestamp::default(),
                is_exact: false,
                hash: held.hash,
                position: held.position,
            })),
            State::Dead => self.buffered(&self.dead_buffer, rows, lane, &mut found),
            _ => {
                self.hot(rows, lane, &mut found);
                for (slot, bucket) in self.buckets.iter() {
                    if rows.may_hold(None, Some(slot.last())) {
                        self.buffered(bucket.buffer(), rows, lane, &mut found);
                    }
                }
            }
        }
        found
    }

    /// Messages in the hot window that are in no table.
    fn hot(&self, rows: &PageBuilder<'_>, lane: Option<u32>, found: &mut Vec<Candidate>) {
        let lanes = self.lanes.numbered().filter(|(number, _)| lane.is_none_or(|lane| lane == *number));
        for (key, near) in lanes.flat_map(|(_, state)| state.hot()) {
            let due = near.data.as_ref().and_then(|data| Some(Peek::framed(data).ok()?.due()));
            if self.journal.has(near.position.file) && rows.may_hold(due, Some(due.unwrap_or(key.ready))) {
                let (hash, position) = (near.hash, near.position);
                found.push(Candidate {
                    due: due.unwrap_or(key.ready),
                    is_exact: due.is_some(),
                    hash,
                    position,
                });
            }
        }
    }

    /// Messages in a buffer that are in no table.
    fn buffered(
        &self,
        buffer: &Buffer,
        rows: &PageBuilder<'_>,
        lane: Option<u32>,
        found: &mut Vec<Candidate>,
    ) {
        for (hash, position, peek) in buffer.entries() {
            let due = peek.due();
            if lane.is_none_or(|lane| lane == peek.lane())
                && self.journal.has(position.file)
                && rows.may_hold(Some(due), Some(due))
            {
                found.push(Candidate { due, is_exact: true, hash, position });
            }
        }
    }

    /// Puts ends of the slice with this number on the page, if they are the latest of their messages and within retention.
    fn offer_ends(&self, rows: &mut PageBuilder<'_>, number: u32, ends: &[(u32, EndPeek<'_>)]) {
        let Some(slice) = self.ended.slice_index(number) else { return };
        let kept_ms = self.ended.retention_ms();
        let now = self.now.wall().as_millis();
        for (off8, end) in ends {
            let Some((hash, lane, _)) = head_fields(end.head()) else { continue };
            let latest = self.ended.is_latest(slice, hash, *off8);
            let kept = end.ended().as_millis().saturating_add(kept_ms) >= now;
            let alive = self.index.candidates(hash).next().is_some();
            if !latest || !kept || alive {
                continue;
            }
            let Some(lane) = self.lanes.get(lane) else { continue };
            if let Ok((record, _)) = end.record(lane.lane()) {
                rows.take(record);
            }
        }
    }
}

/// The one lane that a query is about, if it is.
fn lane_asked_for(query: &Query) -> Option<Lane> {
    match (&query.sink, &query.topic) {
        (Some(sink), Some(topic)) => Some(Lane::of(sink, topic)),
        (Some(sink), None) if !sink.is_queue() => Some(Lane::Sink(sink.clone())),
        _ => None,
    }
}
