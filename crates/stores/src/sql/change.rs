//! Changing one's mind: cancel, reschedule, expire, replay, purge.

use std::collections::{BTreeSet, HashMap};

use duly_core::{
    DeadReason, LeaseLoss, MessageId, Now, State, Timestamp,
    store::{Changed, StoreError},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::{Book, Tally},
    fault::Fault,
    row::{Bodies, Row},
    settle::put_back,
    work::transact,
    write::{Locked, lists},
};

/// So many are changed in one transaction.
const TOGETHER_MAX: usize = 500;

/// What somebody wants of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Cancel,
    Reschedule(Timestamp),
    /// Give up, if it is still due then.
    Expire(Timestamp),
    Replay,
    Purge,
}

/// What a change does to the rows, when it has gone through all of them.
#[derive(Default)]
struct Doing {
    tally: Tally,
    changed: BTreeSet<MessageId>,
    purged: BTreeSet<MessageId>,
    /// Looked at again as if somebody had just put them there: dead letters that were no messages.
    unread: BTreeSet<MessageId>,
}

impl SqlStore {
    pub(super) async fn change_all(
        &self,
        now: Now,
        wishes: Vec<(&MessageId, Change)>,
    ) -> Result<Vec<Changed>, StoreError> {
        self.check_open()?;
        let mut answers = Vec::with_capacity(wishes.len());
        for part in wishes.chunks(TOGETHER_MAX) {
            let changed = transact!(self, |session| self.change_in_one(&mut session, now, part));
            let were_some = answers.iter().any(|answer| matches!(answer, Changed::Done { .. }));
            answers.extend(changed.map_err(|error| if were_some { error.in_part() } else { error })?);
        }
        Ok(answers)
    }

    async fn change_in_one(
        &self,
        session: &mut Session,
        now: Now,
        wishes: &[(&MessageId, Change)],
    ) -> Result<Vec<Changed>, Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = wishes.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        let mut rows: HashMap<_, _> = found.rows.into_iter().map(|row| (row.id().clone(), row)).collect();
        let (mut doing, mut answers) = (Doing::default(), Vec::new());
        for (id, wish) in wishes {
            let Some(row) = rows.get_mut(*id).filter(|_| !doing.purged.contains(id)) else {
                answers.push(Changed::Unknown);
                continue;
            };
            let wanted = match wish {
                Change::Cancel | Change::Reschedule(_) | Change::Expire(_) => State::Pending,
                Change::Replay | Change::Purge => State::Dead,
            };
            // What was never looked at is checked, and counted, before it is given up.
            let is_moved = |due| row.is_raw || row.record.message.due != due;
            let refused = matches!(wish, Change::Expire(due) if is_moved(*due));
            answers.push(if row.record.state == wanted && !refused {
                doing.change(row, now, *wish);
                Changed::Done { maybe_delivered: row.record.maybe_delivered }
            } else {
                Changed::TooLate(row.record.state)
            });
        }
        let Doing { tally, changed, purged, unread } = doing;
        let of =
            |ids: &BTreeSet<MessageId>| -> Vec<&Row> { ids.iter().filter_map(|id| rows.get(id)).collect() };
        let kept = of(&changed.difference(&purged).cloned().collect());
        self.write(session, now, &kept).await?;
        self.remove(session, &purged.iter().map(MessageId::as_str).collect::<Vec<_>>()).await?;
        self.unread(session, &unread.iter().collect::<Vec<_>>()).await?;
        let waits = |row: &&Row| row.record.state == State::Pending && !unread.contains(row.id());
        self.tell_of(session, now, kept.into_iter().filter(waits)).await?;
        self.count(session, &slot, tally).await?;
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

impl Doing {
    fn change(&mut self, row: &mut Row, now: Now, wish: Change) {
        self.changed.insert(row.id().clone());
        match wish {
            Change::Cancel => {
                if row.is_raw {
                    // Never looked at, so never counted.
                    self.tally.book(Book::Accepted, 1);
                } else {
                    self.tally.pending(row.lane_no, row.record.ready, -1);
                }
                row.record.state = State::Cancelled;
                row.record.ended = Some(now.wall());
                self.tally.book(Book::Cancelled, 1);
                self.tally.book(Book::Kept, 1);
            }
            Change::Reschedule(due) => {
                if !row.is_raw {
                    self.tally.pending(row.lane_no, row.record.ready, -1);
                }
                row.record.message.due = due;
                row.record.ready = due;
                if row.is_raw {
                    self.unread.insert(row.id().clone());
                } else {
                    put_back(row, &mut self.tally);
                }
            }
            Change::Expire(_) => {
                self.tally.pending(row.lane_no, row.record.ready, -1);
                row.record.state = State::Dead;
                row.record.ended = Some(now.wall());
                row.record.reason = Some(DeadReason::Expired);
                self.tally.dead(row.lane_no, 1);
            }
            Change::Replay => self.replay(row, now),
            Change::Purge => {
                self.tally.dead(row.lane_no, -1);
                self.tally.book(Book::Purged, 1);
                self.purged.insert(row.id().clone());
            }
        }
    }

    fn replay(&mut self, row: &mut Row, now: Now) {
        let was_invalid = row.record.reason == Some(DeadReason::Invalid);
        self.tally.dead(row.lane_no, -1);
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
            self.tally.book(Book::Accepted, -1);
            record.state = State::Pending;
            self.unread.insert(row.id().clone());
        } else {
            put_back(row, &mut self.tally);
        }
    }
}
