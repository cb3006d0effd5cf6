//! Counters that are kept with every change, so that nobody has to count rows.
//!
//! Every counter is spread over several rows, one for each piece of work that goes on at the same time: else all of them
//! would wait for one row. What a change counts is written last and in order, so that no two wait for each other.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use duly_core::Timestamp;

use super::{
    SqlStore,
    connection::{Session, Statement},
    fault::Fault,
};

/// At most this many counters are written with one statement. There is a statement for every number of them up to this.
const BATCH_MAX: usize = 20;
/// Each counter is spread over this many rows.
const SLOTS: u64 = 64;
/// Distance between the slots of two tries: no other call of this process is likely to use the second one.
const APART: u64 = 23;

/// The totals since the store was made. The numbers are in the database: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    Accepted = 0,
    Delivered = 1,
    Cancelled = 2,
    Dead = 3,
    Purged = 4,
    /// Delivered or cancelled and still there.
    Kept = 5,
}

pub(super) const TOTALS: i64 = 0;
pub(super) const PENDING_OF_LANE: i64 = 1;
pub(super) const DEAD_OF_LANE: i64 = 2;
pub(super) const MINUTES: i64 = 3;
pub(super) const HOURS: i64 = 4;
/// No counter: the [call](super::call) that wrote last, by process and slot.
pub(super) const CALLS: i64 = 5;

pub(super) const MINUTE_MS: u64 = 60_000;
pub(super) const HOUR_MS: u64 = 3_600_000;

/// Counts rows that stop waiting, as [`CounterDeltas::pending`] does.
const CLAIMED_COUNTERS: [(i64, &str); 3] = [
    (PENDING_OF_LANE, "lane_no"),
    (MINUTES, "COALESCE(ready_time_ms, deliver_time_ms) / 60000"),
    (HOURS, "COALESCE(ready_time_ms, deliver_time_ms) / 3600000"),
];

/// The counter changes of one change.
#[derive(Debug, Default)]
pub(super) struct CounterDeltas(BTreeMap<(i64, i64), i64>);

impl CounterDeltas {
    pub(super) fn total(&mut self, counter: Counter, by: i64) {
        self.add(TOTALS, counter as i64, by);
    }

    /// Counts messages that wait in a lane until `ready`.
    pub(super) fn pending(&mut self, lane_no: i64, ready: Timestamp, by: i64) {
        self.add(PENDING_OF_LANE, lane_no, by);
        self.add(MINUTES, (ready.as_millis() / MINUTE_MS) as i64, by);
        self.add(HOURS, (ready.as_millis() / HOUR_MS) as i64, by);
    }

    pub(super) fn dead(&mut self, lane_no: i64, by: i64) {
        self.total(Counter::Dead, by);
        self.add(DEAD_OF_LANE, lane_no, by);
    }

    fn add(&mut self, kind: i64, what: i64, by: i64) {
        *self.0.entry((kind, what)).or_default() += by;
    }
}

/// Numbers of rows that nobody in this process counts in at the moment.
#[derive(Debug)]
pub(super) struct Slots {
    first: u64,
    free: Mutex<Vec<u64>>,
}

impl Slots {
    /// Each process begins elsewhere.
    pub(super) fn new(instance: u64) -> Self {
        Self { first: instance, free: Mutex::new((0..SLOTS).rev().collect()) }
    }

    pub(super) fn take(&self) -> Slot<'_> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Slot { slots: self, index }
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'s> {
    slots: &'s Slots,
    index: Option<u64>,
}

impl Slot<'_> {
    /// Another one at every try: somebody who sleeps in the middle of a transaction may hold the first.
    fn number(&self, tries: u32) -> i64 {
        let index = self.index.unwrap_or_default() + u64::from(tries) * APART;
        (self.slots.first.wrapping_add(index) % SLOTS) as i64
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.slots.free.lock().unwrap_or_else(PoisonError::into_inner).push(index);
        }
    }
}

impl SqlStore {
    /// Writes what a change counts: the last thing before it is committed.
    pub(super) async fn count(
        &self,
        session: &mut Session,
        slot: &Slot<'_>,
        deltas: CounterDeltas,
    ) -> Result<(), Fault> {
        let counts = self.counts(session, slot, deltas);
        for part in counts.chunks(BATCH_MAX) {
            session.run(add(Statement::new(self.dialect(), ""), part)).await?;
        }
        Ok(())
    }

    /// The same, as statements that go to the server with others.
    pub(super) fn counting(
        &self,
        session: &Session,
        slot: &Slot<'_>,
        deltas: CounterDeltas,
    ) -> Option<Statement> {
        let counts = self.counts(session, slot, deltas);
        (!counts.is_empty()).then(|| add(Statement::written(self.dialect(), ""), &counts))
    }

    /// The same, as the part of a statement that does something else: PostgreSQL only.
    pub(super) fn with_counts(&self, session: &Session, slot: &Slot<'_>, deltas: CounterDeltas) -> Statement {
        let with = Statement::new(self.dialect(), "WITH counted AS (");
        let mut with = add(with, &self.counts(session, slot, deltas));
        with.push(") ");
        with
    }

    /// Counts the rows of `claimed`, which do not wait any more: PostgreSQL only.
    pub(super) fn count_claimed(&self, to: &mut Statement, session: &Session, slot: &Slot<'_>) {
        let (slot, call) = match session.call() {
            Some((call, tries)) => (slot.number(tries), Some(call)),
            None => (slot.number(0), None),
        };
        to.push("INSERT INTO duly_count (kind, what, slot, n) SELECT kind, what, ")
            .bind(slot)
            .push(", n FROM (");
        for (index, (kind, what)) in CLAIMED_COUNTERS.into_iter().enumerate() {
            to.push(if index == 0 { "" } else { " UNION ALL " });
            to.push(&format!(
                "SELECT {kind} AS kind, {what} AS what, -COUNT(*) AS n FROM claimed GROUP BY {what}"
            ));
        }
        to.push(") AS counts");
        if let Some(call) = call {
            to.push(" UNION ALL SELECT ").bind_all([CALLS, self.options.instance as i64]).push(", ");
            to.bind_all([call.slot, call.number]).push(" WHERE EXISTS (SELECT 1 FROM claimed)");
        }
        to.push(" ORDER BY kind, what");
        add_up(to);
    }

    /// The rows that a change adds to the counters: kind, what, slot, number.
    fn counts(&self, session: &Session, slot: &Slot<'_>, deltas: CounterDeltas) -> Vec<[i64; 4]> {
        // Deltas that sum up to zero are a change all the same.
        let own = session.call().filter(|_| !deltas.0.is_empty());
        let (slot, counted) =
            (slot.number(own.map_or(0, |(_, tries)| tries)), deltas.0.into_iter().filter(|(_, by)| *by != 0));
        let mut counts: Vec<_> = counted.map(|((kind, what), by)| [kind, what, slot, by]).collect();
        let me = self.options.instance as i64;
        counts.extend(own.map(|(call, _)| [CALLS, me, call.slot, call.number]));
        counts
    }
}

/// Adds rows to the counters.
fn add(mut to: Statement, counts: &[[i64; 4]]) -> Statement {
    to.push("INSERT INTO duly_count (kind, what, slot, n) ");
    if to.takes_arrays() {
        // One text for any number of them.
        to.push("SELECT * FROM unnest(");
        for column in 0..4 {
            to.push(if column == 0 { "" } else { ", " });
            to.bind_array(counts.iter().map(|row| row[column]).collect::<Vec<_>>());
        }
        to.push(")");
    } else {
        to.push("VALUES ");
        for (index, row) in counts.iter().enumerate() {
            to.push(if index == 0 { "(" } else { ", (" });
            to.bind_all(*row).push(")");
        }
    }
    add_up(&mut to);
    to
}

/// The end of an insertion: how a counter that exists is changed.
fn add_up(to: &mut Statement) {
    to.push_as(
        " ON DUPLICATE KEY UPDATE n = CASE WHEN kind = 5 THEN VALUES(n) ELSE n + VALUES(n) END",
        " ON CONFLICT (kind, what, slot) DO UPDATE SET n = CASE WHEN EXCLUDED.kind = 5 THEN EXCLUDED.n \
         ELSE duly_count.n + EXCLUDED.n END",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_counters_in_the_database_never_change() {
        let counters = [
            Counter::Accepted,
            Counter::Delivered,
            Counter::Cancelled,
            Counter::Dead,
            Counter::Purged,
            Counter::Kept,
        ];
        assert_eq!(counters.map(|counter| counter as i64), [0, 1, 2, 3, 4, 5]);
        assert_eq!([TOTALS, PENDING_OF_LANE, DEAD_OF_LANE, MINUTES, HOURS, CALLS], [0, 1, 2, 3, 4, 5]);
    }
}
