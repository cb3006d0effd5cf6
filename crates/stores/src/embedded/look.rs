//! Looking without touching: one message, a list, the lanes, what comes due, and the sweep.

use std::{collections::BTreeMap, io, time::Duration};

use duly_core::{
    Lane, MessageId, Now, Record, State, Timestamp,
    store::{LaneStatus, Page, Query, StoreError, StoreErrorKind, Sweep},
};

use super::{
    Shared,
    ended::{EndPeek, head_facts},
    engine::Engine,
    entry::{self, ALIGN, Peek},
    index::Place,
    table::{TableKind, live_keys, read_all, read_entry},
    wheel::Opened,
};

impl Shared {
    pub(super) async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let now = self.engine().now.wall();
            records.push(match self.find(id).await? {
                Some(found) => {
                    let state = found.state();
                    Some(found.stored()?.into_record(state))
                }
                None => self.find_ended(id, now)?.map(|(record, _)| record),
            });
        }
        Ok(records)
    }

    /// A page by `(due, id)`. Reads keys, and entries only of what may be on the page.
    pub(super) fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let unavailable = |error: io::Error| {
            StoreError::new(StoreErrorKind::Unavailable, format!("listing failed: {error}; ask again"))
        };
        let mut rows = Rows::new(query);
        match query.state {
            State::Delivered | State::Cancelled => self.list_ended(&mut rows).map_err(unavailable)?,
            State::Pending | State::InFlight | State::Dead => {
                self.list_live(&mut rows).map_err(unavailable)?
            }
        }
        Ok(rows.into_page())
    }

    fn list_live(&self, rows: &mut Rows<'_>) -> io::Result<()> {
        let in_memory = self.engine().in_memory(rows.query);
        for (hash, place) in in_memory {
            self.offer(rows, hash, place)?;
        }
        let tables: Vec<_> = {
            let engine = self.engine();
            let wanted = |kind: TableKind| (rows.query.state == State::Dead) == (kind == TableKind::Dead);
            let mut tables: Vec<_> =
                engine.tables.values().filter(|table| table.live > 0 && wanted(table.kind)).collect();
            tables.sort_by_key(|table| table.kind.slot().map_or(Timestamp::default(), |slot| slot.start()));
            tables.iter().map(|table| (table.number, table.keys.clone(), table.keys_len)).collect()
        };
        let lane = lane_asked_for(rows.query).and_then(|lane| self.engine().lanes.number(&lane));
        if lane_asked_for(rows.query).is_some() && lane.is_none() {
            return Ok(());
        }
        for (number, file, len) in tables {
            let bytes = read_all(&*file, 0, len)?;
            for key in live_keys(&bytes) {
                // A retry is released after it was due, never before: what is released too early to matter is passed over.
                let in_lane = lane.is_none_or(|lane| lane == key.lane);
                if in_lane && rows.query.due_from.is_none_or(|from| key.ready >= from) {
                    self.offer_key(rows, key.hash, Place { file: number, off8: key.off8 })?;
                }
            }
        }
        Ok(())
    }

    fn offer_key(&self, rows: &mut Rows<'_>, hash: u64, place: Place) -> io::Result<()> {
        if self.engine().index.marks(hash, place).is_none() {
            return Ok(());
        }
        self.offer(rows, hash, place)
    }

    /// Reads one message and puts it on the page if it belongs there.
    fn offer(&self, rows: &mut Rows<'_>, hash: u64, place: Place) -> io::Result<()> {
        let (marks, file) = {
            let engine = self.engine();
            match engine.index.marks(hash, place) {
                Some(marks) if engine.is_written(place) => (marks, engine.file(place)),
                _ => return Ok(()),
            }
        };
        let Some(file) = file else { return Ok(()) };
        let read = read_entry(&*file, place);
        // Moved while it was read: it is offered from its new place.
        let moved: Option<Vec<Place>> = {
            let engine = self.engine();
            let still_there = engine.index.marks(hash, place).is_some();
            (!still_there).then(|| engine.index.candidates(hash).map(|(place, _)| place).collect())
        };
        if let Some(places) = moved {
            return places.into_iter().try_for_each(|place| self.offer(rows, hash, place));
        }
        let bytes = read?;
        let Ok(peek) = Peek::framed(&bytes) else { return Ok(()) };
        let state = match (peek.is_dead(), marks.claimed) {
            (true, _) => State::Dead,
            (false, true) => State::InFlight,
            (false, false) => State::Pending,
        };
        if state != rows.query.state || !rows.may_take(peek.due(), peek.id_text()) {
            return Ok(());
        }
        let lane = self.engine().lanes.get(peek.lane()).map(|state| state.lane.clone());
        if let Some(lane) = lane
            && let Ok((stored, _)) = entry::decode_head(&bytes, &lane)
        {
            rows.take(stored.into_record(state));
        }
        Ok(())
    }

    fn list_ended(&self, rows: &mut Rows<'_>) -> io::Result<()> {
        let engine = self.engine();
        let kept_ms = engine.ended.retention_ms();
        let now = engine.now.wall().as_millis();
        let mut later: Vec<u64> = Vec::new();
        for slice in engine.ended.slices.iter().rev() {
            let bytes = slice.all()?;
            let mut at = 0;
            let mut here = Vec::new();
            while let Ok(peek) = EndPeek::at(&bytes[at..]) {
                let off8 = (at / ALIGN) as u32;
                at += peek.len();
                let Some((hash, lane, _)) = head_facts(peek.head()) else { continue };
                here.push(hash);
                let latest = slice.is_latest(hash, off8) && later.binary_search(&hash).is_err();
                let kept = peek.ended().as_millis().saturating_add(kept_ms) >= now;
                let alive = engine.index.candidates(hash).next().is_some();
                if !latest || !kept || alive || peek.state() != Some(rows.query.state) {
                    continue;
                }
                let Some(lane) = engine.lanes.get(lane) else { continue };
                if let Ok((record, _)) = peek.record(&lane.lane)
                    && rows.may_take(record.message.due, record.message.id.as_str())
                {
                    rows.take(record);
                }
            }
            later.extend(here);
            later.sort_unstable();
        }
        Ok(())
    }

    pub(super) fn lane_statuses(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        let mut engine = self.engine();
        engine.check_open()?;
        if engine.tick(now) {
            self.keeper.notify_one();
        }
        let statuses = engine
            .lanes
            .iter()
            .filter(|state| state.paused || state.pending > 0 || state.in_flight > 0 || state.dead > 0);
        Ok(statuses
            .map(|state| LaneStatus {
                lane: state.lane.clone(),
                paused: state.paused,
                pending: state.pending,
                ready: state.ready(now.wall()),
                in_flight: state.in_flight,
                dead: state.dead,
                oldest_ready: state.first().map(|key| key.ready).filter(|ready| *ready <= now.wall()),
            })
            .collect())
    }

    pub(super) fn forecast(
        &self,
        from: Timestamp,
        to: Timestamp,
        buckets: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let engine = self.engine();
        engine.check_open()?;
        let mut counts = vec![0; buckets];
        let span = to.as_millis().saturating_sub(from.as_millis());
        if buckets == 0 || span == 0 {
            return Ok(counts);
        }
        let mut add = |at: u64, count: u64| {
            if count > 0 && (from.as_millis()..to.as_millis()).contains(&at) {
                let place = u128::from(at - from.as_millis()) * buckets as u128 / u128::from(span);
                counts[place as usize] += count;
            }
        };
        for (slot, bucket) in &engine.buckets {
            for (part, count) in bucket.parts.iter().enumerate() {
                let (start, _) = slot.part_range(part);
                add(start, u64::from(*count));
            }
        }
        // What is near is counted where it is in memory, and overdue ones as due now.
        let now = engine.now.wall();
        for lane in engine.lanes.iter() {
            let mut rest = lane.near_count;
            for key in lane.near.keys().rev().take_while(|key| key.ready > now) {
                add(key.ready.as_millis(), 1);
                rest = rest.saturating_sub(1);
            }
            add(now.as_millis(), rest);
        }
        Ok(counts)
    }

    pub(super) async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let leases_ended = self.end_leases(now).await?;
        let mut engine = self.engine();
        engine.check_open()?;
        if engine.tick(now) || engine.wants_keeper() {
            self.keeper.notify_one();
        }
        let next = lanes
            .iter()
            .filter_map(|lane| {
                let number = engine.lanes.number(lane)?;
                if engine.lanes.get(number)?.paused {
                    return None;
                }
                Some((lane.clone(), engine.next_due(number)?))
            })
            .collect();
        Ok(Sweep {
            next,
            leases_ended,
            next_lease_end: engine.flight.next_end(),
            again_within: engine.again_within(now),
            paused: None,
        })
    }
}

impl Engine {
    /// How soon a bucket must be opened.
    fn again_within(&self, now: Now) -> Option<Duration> {
        let opens = self.buckets.keys().map(|slot| Opened::opens_at(*slot)).min()?;
        Some(opens.since(now.wall()).max(Duration::from_millis(20)))
    }

    /// The messages that are not in a table yet, and those that are claimed.
    fn in_memory(&self, query: &Query) -> Vec<(u64, Place)> {
        let mut found = Vec::new();
        match query.state {
            State::InFlight => found.extend(self.flight.iter().map(|(_, held)| (held.hash, held.place))),
            State::Dead => found.extend(self.dead.from.iter().copied()),
            _ => {
                let journal = |place: &Place| self.journal.has(place.file);
                for lane in self.lanes.iter() {
                    found.extend(
                        lane.near
                            .values()
                            .filter(|near| journal(&near.place))
                            .map(|near| (near.hash, near.place)),
                    );
                }
                for bucket in self.buckets.values() {
                    found.extend(bucket.buffer.from.iter().copied().filter(|(_, place)| journal(place)));
                }
            }
        }
        found
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

/// A page being filled: the smallest rows seen so far.
struct Rows<'a> {
    query: &'a Query,
    rows: BTreeMap<(Timestamp, MessageId), Record>,
}

impl<'a> Rows<'a> {
    fn new(query: &'a Query) -> Self {
        Self { query, rows: BTreeMap::new() }
    }

    fn may_take(&self, due: Timestamp, id: &str) -> bool {
        let after =
            self.query.after.as_ref().is_none_or(|(last, last_id)| (due, id) > (*last, last_id.as_str()));
        let within =
            self.query.due_from.is_none_or(|from| due >= from) && self.query.due_to.is_none_or(|to| due < to);
        let full = self.rows.len() > self.query.limit;
        let fits = !full
            || self
                .rows
                .last_key_value()
                .is_some_and(|((last, last_id), _)| (due, id) < (*last, last_id.as_str()));
        after && within && fits
    }

    fn take(&mut self, record: Record) {
        if self.query.matches(&record.message) {
            self.rows.insert((record.message.due, record.message.id.clone()), record);
            // One more than asked for tells whether there is another page.
            if self.rows.len() > self.query.limit + 1 {
                self.rows.pop_last();
            }
        }
    }

    fn into_page(mut self) -> Page {
        let more = self.rows.len() > self.query.limit;
        if more {
            self.rows.pop_last();
        }
        let next = if more { self.rows.last_key_value().map(|(key, _)| key.clone()) } else { None };
        Page { records: self.rows.into_values().collect(), next }
    }
}
