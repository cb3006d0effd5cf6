//! Taking messages.

use std::collections::{HashMap, HashSet};

use duly_core::{
    MessageId, Now, State,
    store::{Insert, Inserted, StoreError},
};

use super::{
    SqlStore,
    connection::{Dialect, Session},
    count::{Counter, CounterDeltas, Slot},
    fault::{Fault, garbled},
    row::{Bodies, Row},
    write::{BYTES_MAX, Locked},
};
use crate::shared::{
    lane::lane_text,
    room::{check_limit, waiting_ids},
};

/// Messages inserted by one transaction: other writers wait for as long as it lasts.
const BATCH_MAX: usize = 1000;

impl SqlStore {
    pub(super) async fn accept(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.check_open()?;
        let count = batch.len() as u64;
        if !self.room.fits(count, self.options.limits.pending_max) {
            self.check_room(&batch).await?;
        }
        self.number_lanes(batch.iter().map(|insert| lane_text(&insert.message.lane()))).await?;
        let mut answers = vec![None; batch.len()];
        self.room.send(count);
        let mut outcome = Ok(());
        for part in split_batch(batch) {
            let result = self.take_in(now, part, &mut answers).await;
            if result.is_err() {
                outcome = result;
                break;
            }
        }
        self.room.answer(count);
        self.writes.insert(&outcome);
        let were_some = answers.contains(&Some(Inserted::Accepted));
        outcome.map_err(|error| if were_some { error.in_part() } else { error })?;
        answers.into_iter().map(|answer| answer.ok_or_else(|| garbled("an answer"))).collect()
    }

    async fn take_in(
        &self,
        now: Now,
        part: Vec<(usize, Insert)>,
        answers: &mut [Option<Inserted>],
    ) -> Result<(), StoreError> {
        let mut indexes = HashMap::new();
        let mut rows = Vec::with_capacity(part.len());
        for (index, insert) in part {
            // Known by now, unless the database has just lost it.
            let lane_no = self.lane_number(&lane_text(&insert.message.lane())).await?;
            indexes.insert(insert.message.id.clone(), index);
            rows.push(Row::new(insert, now.wall(), lane_no));
        }
        // All who touch the same rows touch them in the same order, so that none waits for another for ever.
        rows.sort_by(|a, b| a.id().cmp(b.id()));
        let claims = self.transact(|borrowed| Box::pin(self.put_new(borrowed.session, now, &rows))).await?;
        for (id, answer) in claims {
            if let Some(index) = indexes.get(&id) {
                answers[*index] = Some(answer);
            }
        }
        Ok(())
    }

    async fn put_new(
        &self,
        session: &mut Session,
        now: Now,
        rows: &[Row],
    ) -> Result<Vec<(MessageId, Inserted)>, Fault> {
        let slot = self.slots.take();
        let all: Vec<_> = rows.iter().collect();
        match self.put_and_count(session, now, &slot, &all).await {
            Ok(()) => {
                self.send_hints(session, now, rows.iter().filter(|row| waits(row))).await?;
                return Ok(rows.iter().map(|row| (row.id().clone(), Inserted::Accepted)).collect());
            }
            // Whoever waits for a known row and has seen it holds on to it a little: two who then want to lock it wait for
            // each other. So nothing is held when it is locked.
            Err(Fault::DuplicateId) => session.start_over().await?,
            Err(fault) => return Err(fault),
        }
        let ids: Vec<_> = rows.iter().map(Row::id).collect();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        let known: HashMap<_, _> = found.rows.iter().map(|row| (row.id(), row)).collect();
        let bad: HashSet<_> = found.bad.iter().map(|bad| bad.id.as_str()).collect();
        let verdict = |row: &Row| match known.get(row.id()) {
            Some(first) => self.judge(now, row, first),
            // There is something of this id that is no message.
            None if bad.contains(row.id().as_str()) => Verdict::Answered(Inserted::Conflict),
            None => Verdict::New,
        };
        let verdict: Vec<_> = rows.iter().map(|row| (row, verdict(row))).collect();
        let of = |wanted: &[Verdict]| -> Vec<&Row> {
            verdict.iter().filter(|(_, is)| wanted.contains(is)).map(|(row, _)| *row).collect()
        };
        let afresh: Vec<_> = of(&[Verdict::Afresh]).into_iter().map(|row| row.id().as_str()).collect();
        self.remove(session, &afresh).await?;
        let new = of(&[Verdict::New, Verdict::Afresh]);
        self.put(session, now, &new).await?;
        self.count(session, &slot, accepted(&new, afresh.len() as i64)).await?;
        self.send_hints(session, now, new.iter().copied().filter(|row| waits(row))).await?;
        let answer = |verdict| match verdict {
            Verdict::New | Verdict::Afresh => Inserted::Accepted,
            Verdict::Answered(answer) => answer,
        };
        Ok(verdict.into_iter().map(|(row, verdict)| (row.id().clone(), answer(verdict))).collect())
    }

    /// Decides about `row`, whose id is known by `first`.
    fn judge(&self, now: Now, row: &Row, first: &Row) -> Verdict {
        let record = &first.record;
        let forgotten = now.wall().saturating_sub(self.options.retention);
        let is_past = matches!(record.state, State::Delivered | State::Cancelled)
            && record.ended.is_some_and(|ended| ended <= forgotten);
        if record.state == State::Cancelled || is_past {
            return Verdict::Afresh;
        }
        Verdict::Answered(if first.hash == row.hash {
            Inserted::Duplicate { due: record.message.due, state: record.state }
        } else {
            Inserted::Conflict
        })
    }

    async fn put_and_count(
        &self,
        session: &mut Session,
        now: Now,
        slot: &Slot<'_>,
        rows: &[&Row],
    ) -> Result<(), Fault> {
        let bytes: usize = rows.iter().map(|row| row.record.message.bytes()).sum();
        let is_plain = !rows.iter().any(|row| row.has_past);
        if self.dialect() == Dialect::Postgres && bytes <= BYTES_MAX && is_plain {
            return self.insert_at_once(session, now, slot, rows, accepted(rows, 0)).await;
        }
        self.put(session, now, rows).await?;
        self.count(session, slot, accepted(rows, 0)).await
    }

    /// The exact look, for when the limit may be near. Known ids and dead letters need no room.
    async fn check_room(&self, batch: &[Insert]) -> Result<(), StoreError> {
        let (max, answered_before) = (self.options.limits.pending_max, self.room.ask());
        let totals = self.all_totals().await?;
        self.room.update(answered_before, totals.pending + totals.in_flight);
        let stored = self.records(&waiting_ids(batch), Bodies::Without).await?;
        check_limit(&totals, stored, max)
    }
}

/// Whether a new row waits: one that was moved here may be a dead letter.
fn waits(row: &Row) -> bool {
    row.record.state == State::Pending
}

/// Counts new rows, some of which replace kept ones.
fn accepted(rows: &[&Row], afresh: i64) -> CounterDeltas {
    let mut deltas = CounterDeltas::default();
    for row in rows {
        deltas.total(Counter::Accepted, 1);
        if waits(row) {
            deltas.pending(row.lane_no, row.record.ready, 1);
        } else {
            deltas.dead(row.lane_no, 1);
        }
    }
    deltas.total(Counter::Kept, -afresh);
    deltas
}

/// The decision about a message to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    New,
    /// The row with this id has ended: the message is inserted as a new one.
    Afresh,
    Answered(Inserted),
}

/// Splits a batch so that no part is too large and no id is twice in one. Each item has its index in the whole.
fn split_batch(batch: Vec<Insert>) -> Vec<Vec<(usize, Insert)>> {
    let mut parts: Vec<(Vec<_>, HashSet<MessageId>)> = Vec::new();
    for (index, insert) in batch.into_iter().enumerate() {
        let id = &insert.message.id;
        let full = |(part, ids): &(Vec<_>, HashSet<_>)| part.len() == BATCH_MAX || ids.contains(id);
        if parts.last().is_none_or(full) {
            parts.push(Default::default());
        }
        if let Some((part, ids)) = parts.last_mut() {
            ids.insert(id.clone());
            part.push((index, insert));
        }
    }
    parts.into_iter().map(|(part, _)| part).collect()
}
