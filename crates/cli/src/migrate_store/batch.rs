//! One batch on its way: a parked copy at the target, a cancel at the source, then the copy comes to life.

use std::collections::BTreeSet;

use duly::{MessageId, Now, Record, State, Timestamp};
use duly_core::store::{Changed, Insert, Inserted, Past};

use super::{
    decide::{CopyOutcome, WithdrawReason, after_cancel, are_known_to_differ, is_another},
    end::Halt,
    migration::Migration,
    parked::{park, unpark},
};

/// Batch markers removed by one call.
const RETIRED_TOGETHER: usize = 64;

/// A message whose copy is at the target.
struct CopiedMessage {
    id: MessageId,
    due: Timestamp,
    /// Its history at the source before it was read.
    past: Past,
    copy: Copy,
}

impl CopiedMessage {
    /// Whether it was tried at the source before.
    fn is_tried(&self) -> bool {
        self.past.attempts > 0 || !self.past.history.is_empty()
    }

    /// Whether a copy was made before its last try at the source, or before it was cancelled there and sent again.
    fn is_ahead_of(&self, copy: &Record) -> bool {
        let Past { accepted, attempts, history, maybe_delivered, .. } = &self.past;
        let is_tried =
            (copy.attempts, &copy.history, copy.maybe_delivered) != (*attempts, history, *maybe_delivered);
        is_tried || are_known_to_differ(*accepted, copy.accepted)
    }
}

/// The copy at the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    /// A parked copy of ours.
    Parked,
    /// The message itself, sent there by somebody else, or moved there before.
    Itself,
}

impl Migration<'_> {
    /// Moves these pending messages. They are cancelled with the instant `asked`, which identifies our cancel: all of them were pending after
    /// it, so that nobody else has cancelled one at that instant. `may_come_late` says whether a call of ours could have come late when they
    /// were read: it may have cancelled some of them since.
    pub(super) async fn move_pending(
        &mut self,
        asked: Now,
        records: Vec<Record>,
        may_come_late: bool,
    ) -> Result<(), Halt> {
        self.presence.check()?;
        let marker = self.marker.of_batch(asked.wall()).map_err(Halt::Failed)?;
        let marker_id = marker.id.clone();
        let copied = self.park(Insert::new(marker), records, may_come_late).await?;
        if copied.is_empty() {
            return self.retire(marker_id).await;
        }
        // From here on the cancel may take effect, whatever its answer.
        self.in_doubt.instants.add(asked.wall());
        let ids: Vec<_> = copied.iter().map(|each| each.id.clone()).collect();
        self.presence.check()?;
        let answers = self.source.cancel_at(asked, &ids).await?;
        let known = self.source.get(&ids).await?;
        let mut outcomes = Vec::with_capacity(copied.len());
        for ((each, answer), record) in copied.into_iter().zip(answers).zip(known) {
            let is_done = matches!(answer, Changed::Done { .. });
            if each.copy == Copy::Itself {
                self.report.counts.known += u64::from(is_done);
                self.progress.read(1);
                continue;
            }
            if is_done {
                self.report.counts.tried += u64::from(each.is_tried());
                let maybe = answer == Changed::Done { maybe_delivered: true };
                self.report.counts.maybe_delivered += u64::from(maybe);
            }
            let outcome = after_cancel(answer, record.as_ref(), &self.in_doubt.instants, each.due);
            // Cancelled and sent again since it was read.
            let is_gone = record.is_some_and(|record| is_another(&record, each.past.accepted));
            let outcome = if is_gone && matches!(outcome, CopyOutcome::Live(_)) {
                CopyOutcome::Forgotten
            } else {
                outcome
            };
            outcomes.push((each.id, outcome.by_now(may_come_late)));
        }
        let is_in_doubt =
            outcomes.iter().any(|(_, outcome)| matches!(outcome, CopyOutcome::Stay | CopyOutcome::Forgotten));
        self.apply(outcomes).await?;
        if is_in_doubt {
            return Ok(());
        }
        self.in_doubt.instants.remove(asked.wall());
        self.retire(marker_id).await
    }

    /// Removes the marker of a batch of which nothing is in doubt, together with others.
    async fn retire(&mut self, marker: MessageId) -> Result<(), Halt> {
        self.in_doubt.retired.push(marker);
        if self.in_doubt.retired.len() >= RETIRED_TOGETHER { self.remove_retired().await } else { Ok(()) }
    }

    /// Removes the markers of batches that are over.
    pub(super) async fn remove_retired(&mut self) -> Result<(), Halt> {
        if !self.in_doubt.retired.is_empty() {
            self.target.cancel(&self.in_doubt.retired).await?;
            self.in_doubt.retired.clear();
        }
        Ok(())
    }

    /// Puts the marker of the batch and parked copies of these at the target. Gives those that may be cancelled at the source now.
    async fn park(
        &mut self,
        marker: Insert,
        records: Vec<Record>,
        may_come_late: bool,
    ) -> Result<Vec<CopiedMessage>, Halt> {
        let withdrawn = if may_come_late { self.withdrawn(&records).await? } else { BTreeSet::new() };
        let mut copies = Vec::with_capacity(records.len() + 1);
        copies.push(marker);
        let mut copied = Vec::with_capacity(records.len());
        for record in records {
            let Some(later) = park(record.message.due) else { continue };
            let (id, due) = (record.message.id.clone(), record.message.due);
            if self.marker.has_id(&id) {
                self.report.kept.reserved += 1;
                self.name_reserved(&id);
                continue;
            }
            if withdrawn.contains(&id) {
                continue;
            }
            let mut copy = Insert::moved(record);
            let past = copy.past.as_deref().cloned().unwrap_or_default();
            copied.push(CopiedMessage { id, due, past, copy: Copy::Parked });
            copy.message.due = later;
            copies.push(copy);
        }
        let mut answers = self.target.insert(copies).await?.into_iter();
        if answers.next() != Some(Inserted::Accepted) {
            return Err(Halt::Again(format!(
                "{}: the marker of a batch was there before it",
                self.target.shown
            )));
        }
        let mut may_go = Vec::with_capacity(copied.len());
        let (mut parked_before, mut conflicts) = (Vec::new(), Vec::new());
        for (mut each, answer) in copied.into_iter().zip(answers) {
            match answer {
                Inserted::Accepted => may_go.push(each),
                Inserted::Duplicate { due, state: State::Pending } if unpark(due).is_some() => {
                    parked_before.push(each);
                }
                // It may have been a parked copy that somebody rescheduled at the target: a withdrawal that comes late would cancel it.
                Inserted::Duplicate { .. } if may_come_late => {}
                Inserted::Duplicate { .. } => {
                    each.copy = Copy::Itself;
                    may_go.push(each);
                }
                Inserted::Conflict => conflicts.push(each.id),
            }
        }
        self.part_conflicts(&conflicts, may_come_late).await?;
        may_go.extend(self.part_outdated(parked_before, may_come_late).await?);
        Ok(may_go)
    }

    /// The records of which a copy was withdrawn from the target. A late repetition of that call could withdraw the next copy, so no
    /// copy is parked before a repetition is impossible.
    async fn withdrawn(&self, records: &[Record]) -> Result<BTreeSet<MessageId>, Halt> {
        let ids: Vec<_> = records.iter().map(|record| record.message.id.clone()).collect();
        let known = self.target.get_without_bodies(&ids).await?;
        let is_withdrawn =
            |known: &Option<Record>| known.as_ref().is_some_and(|known| known.state == State::Cancelled);
        Ok(ids.into_iter().zip(known).filter(|(_, known)| is_withdrawn(known)).map(|(id, _)| id).collect())
    }

    /// Gives those whose copies, parked before, tell all that happened to them. A message that was tried at the source since waits for
    /// a later pass, which parks another copy: so no try and no doubt about a delivery is forgotten.
    /// None while a call may come late: it may be a withdrawal, and the copy all that there is of a message that is cancelled.
    async fn part_outdated(
        &mut self,
        parked_before: Vec<CopiedMessage>,
        may_come_late: bool,
    ) -> Result<Vec<CopiedMessage>, Halt> {
        if parked_before.is_empty() || may_come_late {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = parked_before.iter().map(|each| each.id.clone()).collect();
        let copies = self.target.get_without_bodies(&ids).await?;
        let is_outdated = |(each, copy): &(CopiedMessage, Option<Record>)| {
            let is_parked =
                |copy: &&Record| copy.state == State::Pending && unpark(copy.message.due).is_some();
            copy.as_ref().filter(is_parked).is_some_and(|copy| each.is_ahead_of(copy))
        };
        let (outdated, may_go): (Vec<_>, Vec<_>) =
            parked_before.into_iter().zip(copies).partition(is_outdated);
        let outdated: Vec<_> = outdated.into_iter().map(|(each, _)| each.id).collect();
        self.withdraw_outdated(&outdated, may_come_late).await?;
        Ok(may_go.into_iter().map(|(each, _)| each).collect())
    }

    /// Withdraws copies so that a later pass parks others. Not if a call of ours could come late when their messages were read: it
    /// might withdraw the others, too, or have cancelled the messages since. Says whether it did.
    async fn withdraw_outdated(&mut self, ids: &[MessageId], may_come_late: bool) -> Result<bool, Halt> {
        if ids.is_empty() || may_come_late {
            return Ok(false);
        }
        self.presence.check()?;
        self.target.cancel(ids).await?;
        Ok(true)
    }

    /// An id like those of the markers: two messages of that id at the target could not be told apart.
    pub(super) fn name_reserved(&mut self, id: &MessageId) {
        let (progress, out) = (self.progress, self.out);
        self.report.name_reserved(id, |words| progress.complain(out, words));
    }

    pub(super) fn conflict(&mut self, id: &MessageId) {
        let (progress, out) = (self.progress, self.out);
        self.report.conflict(id, |words| progress.complain(out, words));
    }

    /// Parts ids that mean something else at the target from those whose copy there is our own, of what was cancelled at the source
    /// since and sent again with other content. Such a copy is withdrawn.
    async fn part_conflicts(&mut self, ids: &[MessageId], may_come_late: bool) -> Result<(), Halt> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut outdated = Vec::new();
        for (id, record) in ids.iter().zip(self.target.get(ids).await?) {
            match record {
                Some(record) if record.state == State::Pending && unpark(record.message.due).is_some() => {
                    outdated.push(id.clone());
                }
                _ => self.conflict(id),
            }
        }
        if self.withdraw_outdated(&outdated, may_come_late).await? {
            self.report.counts.cancelled += outdated.len() as u64;
        }
        Ok(())
    }

    /// Brings copies to life or withdraws them. Gives how many came to life.
    pub(super) async fn apply(&mut self, outcomes: Vec<(MessageId, CopyOutcome)>) -> Result<u64, Halt> {
        let (mut live, mut withdrawn) = (Vec::new(), Vec::new());
        for (id, outcome) in outcomes {
            match outcome {
                CopyOutcome::Live(due) => live.push((id, due)),
                CopyOutcome::Drop(why) => {
                    self.report.counts.cancelled += u64::from(why == WithdrawReason::Cancelled);
                    self.report.counts.withdrawn += u64::from(why == WithdrawReason::AtSource);
                    withdrawn.push(id);
                }
                // A later look at what is parked comes to it.
                CopyOutcome::Stay | CopyOutcome::Dead | CopyOutcome::Forgotten => {}
            }
        }
        self.presence.check()?;
        let mut moved = 0;
        if !live.is_empty() {
            for answer in self.target.reschedule(&live).await? {
                match answer {
                    // Somebody who cancelled it here was told that it is done.
                    Changed::TooLate(State::Cancelled) | Changed::Unknown => {
                        self.report.counts.cancelled += 1
                    }
                    // Or fired it: then the target is at it already.
                    _ => moved += 1,
                }
            }
        }
        self.report.counts.moved += moved;
        self.presence.check()?;
        if !withdrawn.is_empty() {
            self.target.cancel(&withdrawn).await?;
        }
        self.progress.read((live.len() + withdrawn.len()) as u64);
        Ok(moved)
    }
}
