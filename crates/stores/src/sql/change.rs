//! Changing one's mind: cancel, reschedule, expire, replay, purge.

use std::collections::{BTreeSet, HashMap};

use duly_core::{
    DeadReason, LeaseLoss, MessageId, Now, State, Timestamp,
    store::{Changed, StoreError},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::{Counter, CounterDeltas},
    fault::Fault,
    row::{Bodies, Row},
    settle::put_back,
    write::{Locked, lists},
};

/// Messages changed by one transaction.
const BATCH_MAX: usize = 500;

/// A change that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Cancel,
    Reschedule(Timestamp),
    /// Give up, if it is still due then.
    Expire(Timestamp),
    Replay,
    Purge,
}

/// The writes of a change, after all its rows were read.
#[derive(Default)]
struct PendingChanges {
    deltas: CounterDeltas,
    changed: BTreeSet<MessageId>,
    purged: BTreeSet<MessageId>,
    /// Looked at again as if somebody had just put them there: dead letters that were no messages.
    unread: BTreeSet<MessageId>,
}

impl SqlStore {
    pub(super) async fn change_all(
        &self,
        now: Now,
        changes: Vec<(&MessageId, Change)>,
    ) -> Result<Vec<Changed>, StoreError> {
        self.check_open()?;
        let mut answers = Vec::with_capacity(changes.len());
        for part in changes.chunks(BATCH_MAX) {
            let changed =
                self.transact(|borrowed| Box::pin(self.change_in_one(borrowed.session, now, part))).await;
            let were_some = answers.iter().any(|answer| matches!(answer, Changed::Done { .. }));
            answers.extend(changed.map_err(|error| if were_some { error.in_part() } else { error })?);
        }
        Ok(answers)
    }

    async fn change_in_one(
        &self,
        session: &mut Session,
        now: Now,
        changes: &[(&MessageId, Change)],
    ) -> Result<Vec<Changed>, Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = changes.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        let mut rows: HashMap<_, _> = found.rows.into_iter().map(|row| (row.id().clone(), row)).collect();
        let (mut pending, mut answers) = (PendingChanges::default(), Vec::new());
        for (id, change) in changes {
            let Some(row) = rows.get_mut(*id).filter(|_| !pending.purged.contains(id)) else {
                answers.push(Changed::Unknown);
                continue;
            };
            let wanted = match change {
                Change::Cancel | Change::Reschedule(_) | Change::Expire(_) => State::Pending,
                Change::Replay | Change::Purge => State::Dead,
            };
            // A row that was never read is checked and counted before it is given up.
            let is_moved = |due| row.is_raw || row.record.message.due != due;
            let refused = matches!(change, Change::Expire(due) if is_moved(*due));
            answers.push(if row.record.state == wanted && !refused {
                pending.change(row, now, *change);
                Changed::Done { maybe_delivered: row.record.maybe_delivered }
            } else {
                Changed::TooLate(row.record.state)
            });
        }
        let PendingChanges { deltas, changed, purged, unread } = pending;
        let of =
            |ids: &BTreeSet<MessageId>| -> Vec<&Row> { ids.iter().filter_map(|id| rows.get(id)).collect() };
        let kept = of(&changed.difference(&purged).cloned().collect());
        self.write(session, now, &kept).await?;
        self.remove(session, &purged.iter().map(MessageId::as_str).collect::<Vec<_>>()).await?;
        self.unread(session, &unread.iter().collect::<Vec<_>>()).await?;
        let waits = |row: &&Row| row.record.state == State::Pending && !unread.contains(row.id());
        self.send_hints(session, now, kept.into_iter().filter(waits)).await?;
        self.count(session, &slot, deltas).await?;
        Ok(answers)
    }

    /// Rows that were no messages are looked at again by the next sweep, and so is what they say.
    async fn unread(&self, session: &mut Session, ids: &[&MessageId]) -> Result<(), Fault> {
        for list in lists(ids) {
            let mut update = Statement::new(self.dialect(), "UPDATE delay_message ");
            update.push_as("FORCE INDEX (PRIMARY) ", "").push(
                "SET queue_no = NULL, queue_at = NULL, content_hash = NULL, unindexed_at = NULL WHERE message_id IN (",
            );
            update.bind_all(list).push(")");
            session.run(update).await?;
        }
        Ok(())
    }
}

impl PendingChanges {
    fn change(&mut self, row: &mut Row, now: Now, change: Change) {
        self.changed.insert(row.id().clone());
        match change {
            Change::Cancel => {
                if row.is_raw {
                    // Never looked at, so never counted.
                    self.deltas.total(Counter::Accepted, 1);
                } else {
                    self.deltas.pending(row.lane_no, row.record.ready, -1);
                }
                row.record.state = State::Cancelled;
                row.record.ended = Some(now.wall());
                self.deltas.total(Counter::Cancelled, 1);
                self.deltas.total(Counter::Kept, 1);
            }
            Change::Reschedule(due) => {
                if !row.is_raw {
                    self.deltas.pending(row.lane_no, row.record.ready, -1);
                }
                row.record.message.due = due;
                row.record.ready = due;
                if row.is_raw {
                    self.unread.insert(row.id().clone());
                } else {
                    put_back(row, &mut self.deltas);
                }
            }
            Change::Expire(_) => {
                self.deltas.pending(row.lane_no, row.record.ready, -1);
                row.record.state = State::Dead;
                row.record.ended = Some(now.wall());
                row.record.reason = Some(DeadReason::Expired);
                self.deltas.dead(row.lane_no, 1);
            }
            Change::Replay => self.replay(row, now),
            Change::Purge => {
                self.deltas.dead(row.lane_no, -1);
                self.deltas.total(Counter::Purged, 1);
                self.purged.insert(row.id().clone());
            }
        }
    }

    fn replay(&mut self, row: &mut Row, now: Now) {
        let was_invalid = row.record.reason == Some(DeadReason::Invalid);
        self.deltas.dead(row.lane_no, -1);
        let record = &mut row.record;
        record.message.due = now.wall();
        record.ready = now.wall();
        record.attempts = 0;
        record.history.clear();
        record.ended = None;
        record.reason = None;
        record.receipt = None;
        row.lost = LeaseLoss::None;
        if was_invalid {
            // It is counted when it is looked at again, as every row that somebody else put there.
            self.deltas.total(Counter::Accepted, -1);
            record.state = State::Pending;
            self.unread.insert(row.id().clone());
        } else {
            put_back(row, &mut self.deltas);
        }
    }
}
