//! Ending claims, and letting them go on.

use std::{collections::HashMap, time::Duration};

use duly_core::{
    Attempt, LeaseLoss, MessageId, Now, Outcome, Receipt, State,
    store::{Settle, Settled, Settlement, StoreError},
};

use super::{
    SqlStore,
    connection::Session,
    count::{Counter, CounterDeltas},
    deliver::Delivered,
    fault::Fault,
    row::{Bodies, Row},
    write::Locked,
};

/// Claims ended by one transaction.
const BATCH_MAX: usize = 1000;

impl SqlStore {
    pub(super) async fn settle_all(&self, now: Now, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        self.check_open()?;
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(BATCH_MAX) {
            let settled =
                self.transact(|borrowed| Box::pin(self.settle_in_one(borrowed.session, now, part))).await;
            let were_some = answers.contains(&Settled::Done);
            answers.extend(settled.map_err(|error| if were_some { error.in_part() } else { error })?);
        }
        Ok(answers)
    }

    async fn settle_in_one(
        &self,
        session: &mut Session,
        now: Now,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, Fault> {
        let slot = self.slots.take();
        if let Some(delivered) = Delivered::of(batch) {
            if self.end_delivered(session, now, &slot, &delivered).await? {
                return Ok(vec![Settled::Done; batch.len()]);
            }
            session.start_over().await?;
        }
        let mut rows = self.held(session, batch.iter().map(|settle| &settle.receipt)).await?;
        let (mut deltas, mut answers, mut changed) = (CounterDeltas::default(), Vec::new(), Vec::new());
        for Settle { receipt, settlement } in batch {
            answers.push(match rows.get_mut(&receipt.id) {
                Some(row) if self.is_held(now, row, receipt) => {
                    end(row, now, settlement, &mut deltas);
                    changed.push(&receipt.id);
                    Settled::Done
                }
                _ => Settled::Lost,
            });
        }
        let changed: Vec<_> = changed.into_iter().filter_map(|id| rows.get(id)).collect();
        self.write(session, now, &changed).await?;
        self.send_hints(session, now, changed.into_iter().filter(|row| row.record.state == State::Pending))
            .await?;
        self.count(session, &slot, deltas).await?;
        Ok(answers)
    }

    pub(super) async fn extend_all(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.check_open()?;
        let mut answers = Vec::with_capacity(receipts.len());
        for part in receipts.chunks(BATCH_MAX) {
            let extended = self
                .transact(|borrowed| Box::pin(self.extend_in_one(borrowed.session, now, part, lease)))
                .await;
            let were_some = answers.contains(&Settled::Done);
            answers.extend(extended.map_err(|error| if were_some { error.in_part() } else { error })?);
        }
        Ok(answers)
    }

    /// Twice is as good as once.
    async fn extend_in_one(
        &self,
        session: &mut Session,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, Fault> {
        let (end, span) = self.lease_end(now, lease);
        let mut rows = self.held(session, receipts.iter()).await?;
        let mut answers = Vec::with_capacity(receipts.len());
        let mut changed = Vec::new();
        for receipt in receipts {
            answers.push(match rows.get_mut(&receipt.id) {
                Some(row) if self.is_held(now, row, receipt) => {
                    (row.lease_end, row.span_us) = (end, span as i64);
                    changed.push(&receipt.id);
                    Settled::Done
                }
                _ => Settled::Lost,
            });
        }
        changed.sort_unstable();
        changed.dedup();
        let changed: Vec<_> = changed.into_iter().filter_map(|id| rows.get(id)).collect();
        self.write(session, now, &changed).await?;
        Ok(answers)
    }

    async fn held(
        &self,
        session: &mut Session,
        receipts: impl Iterator<Item = &Receipt>,
    ) -> Result<HashMap<MessageId, Row>, Fault> {
        let mut ids: Vec<_> = receipts.map(|receipt| &receipt.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        Ok(found.rows.into_iter().map(|row| (row.id().clone(), row)).collect())
    }

    /// Whether the receipt is the proof of the claim that the message is in.
    fn is_held(&self, now: Now, row: &Row, receipt: &Receipt) -> bool {
        row.record.state == State::InFlight
            && row.token == receipt.token
            && receipt.shard == self.shard_of(&receipt.id)
            && row.lease_end > self.time.tick(now)
    }

    /// The end of a lease in the store's time, and its span, both in microseconds.
    pub(super) fn lease_end(&self, now: Now, lease: Duration) -> (u64, u64) {
        /// A lease of a year is for ever.
        const SPAN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
        let span = lease.min(SPAN_MAX).as_micros() as u64;
        (self.time.latest_tick(now) + span, span)
    }
}

/// Ends the claim of a row.
fn end(row: &mut Row, now: Now, settlement: &Settlement, deltas: &mut CounterDeltas) {
    match settlement {
        Settlement::Release => put_back(row, deltas),
        Settlement::Defer { at } => {
            row.record.ready = (*at).max(row.record.message.due);
            put_back(row, deltas);
        }
        Settlement::Retry { at, attempt } => {
            row.record_attempt(attempt.clone());
            // Wall time may have stepped back behind the due time since the claim.
            row.record.ready = (*at).max(row.record.message.due);
            row.lost = LeaseLoss::None;
            put_back(row, deltas);
        }
        Settlement::Delivered { receipt } => {
            row.record.attempts = row.record.attempts.saturating_add(1);
            row.record.state = State::Delivered;
            row.record.ended = Some(now.wall());
            // PostgreSQL keeps no text with a zero in it.
            row.record.receipt = receipt.as_ref().map(|receipt| receipt.replace('\0', ""));
            deltas.total(Counter::Delivered, 1);
            deltas.total(Counter::Kept, 1);
        }
        Settlement::Dead { reason, attempt } => {
            if let Some(attempt) = attempt {
                row.record_attempt(attempt.clone());
            }
            row.record.state = State::Dead;
            row.record.ended = Some(now.wall());
            row.record.reason = Some(*reason);
            deltas.dead(row.lane_no, 1);
        }
    }
}

/// Puts a row back where it waits.
pub(super) fn put_back(row: &mut Row, deltas: &mut CounterDeltas) {
    row.record.state = State::Pending;
    deltas.pending(row.lane_no, row.record.ready, 1);
}

/// Ends a claim that nobody settled: counted, and under suspicion. What was lost before had been claimed alone.
pub(super) fn lose(row: &mut Row, now: Now, why: &str, deltas: &mut CounterDeltas) {
    row.record_attempt(Attempt::new(now.wall(), Outcome::Lost, why));
    let was_alone = row.lost != LeaseLoss::None || row.is_only;
    row.lost = if was_alone { LeaseLoss::Alone } else { LeaseLoss::InBatch };
    put_back(row, deltas);
}
