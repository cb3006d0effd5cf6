//! One batch on its way: a parked copy at the target, a cancel at the source, then the copy comes to life.

use duly::{MessageId, Now, Record, State, Timestamp};
use duly_core::{
    Message,
    store::{Changed, Inserted},
};

use super::{
    decide::{Fate, Why, after_cancel},
    end::Halt,
    moving::Move,
    parked::{park, unpark},
};

/// So many markers of batches are removed in one call.
const RETIRED_TOGETHER: usize = 64;

/// A message whose copy is at the target.
struct Carried {
    id: MessageId,
    due: Timestamp,
    accepted: Option<Timestamp>,
    /// It was tried at the source before.
    tried: bool,
    copy: Copy,
}

/// What is at the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    /// A parked copy of ours.
    Parked,
    /// The message itself, sent there by somebody else, or moved there before.
    Itself,
}

impl Move<'_> {
    /// Carries these over, all of which were pending at some moment after `asked`. That is the instant they are cancelled at, so
    /// that nobody else can have cancelled one of them at the same.
    pub(super) async fn carry(&mut self, asked: Now, records: Vec<Record>) -> Result<(), Halt> {
        self.presence.check()?;
        let marker = self.marker.of_batch(asked.wall()).map_err(Halt::Failed)?;
        let marker_id = marker.id.clone();
        let carried = self.park(marker, records).await?;
        if carried.is_empty() {
            return self.retire(marker_id).await;
        }
        // Whatever becomes of the call, from here on it may have been done.
        self.instants.add(asked.wall());
        let ids: Vec<_> = carried.iter().map(|each| each.id.clone()).collect();
        self.presence.check()?;
        let answers = self.source.cancel_at(asked, &ids).await?;
        let known = self.source.get(&ids).await?;
        let mut fates = Vec::with_capacity(carried.len());
        for ((each, answer), record) in carried.into_iter().zip(answers).zip(known) {
            let is_done = matches!(answer, Changed::Done { .. });
            if each.copy == Copy::Itself {
                self.report.known += u64::from(is_done);
                self.progress.read(1);
                continue;
            }
            if is_done {
                self.report.tried += u64::from(each.tried);
                let maybe = answer == Changed::Done { maybe_delivered: true };
                self.report.maybe_delivered += u64::from(maybe);
            }
            // Cancelled and sent again since it was read: what was cancelled now is not what the copy was made of.
            let is_another =
                |record: &Record| record.ended == Some(asked.wall()) && record.accepted != each.accepted;
            if is_done && record.as_ref().is_some_and(is_another) {
                self.replaced.insert(each.id.clone());
                fates.push((each.id, Fate::Forgotten));
                continue;
            }
            let fate = after_cancel(answer, record.as_ref(), &self.instants, each.due);
            fates.push((each.id, self.by_now(fate)));
        }
        let is_in_doubt = fates.iter().any(|(_, fate)| matches!(fate, Fate::Stay | Fate::Forgotten));
        self.apply(fates).await?;
        if is_in_doubt {
            return Ok(());
        }
        self.instants.remove(asked.wall());
        self.retire(marker_id).await
    }

    /// Removes the marker of a batch of which nothing is in doubt, together with others.
    async fn retire(&mut self, marker: MessageId) -> Result<(), Halt> {
        self.retired.push(marker);
        if self.retired.len() >= RETIRED_TOGETHER { self.remove_retired().await } else { Ok(()) }
    }

    /// Removes the markers of batches that are over.
    pub(super) async fn remove_retired(&mut self) -> Result<(), Halt> {
        if !self.retired.is_empty() {
            self.target.cancel(&self.retired).await?;
            self.retired.clear();
        }
        Ok(())
    }

    /// Puts the marker of the batch and parked copies of these at the target. Gives those that may be cancelled at the source now.
    async fn park(&mut self, marker: Message, records: Vec<Record>) -> Result<Vec<Carried>, Halt> {
        let mut messages = Vec::with_capacity(records.len() + 1);
        messages.push(marker);
        let mut carried = Vec::with_capacity(records.len());
        for Record { mut message, attempts, history, accepted, .. } in records {
            let Some(later) = park(message.due) else { continue };
            let (id, tried) = (message.id.clone(), attempts > 0 || !history.is_empty());
            if self.marker.has_id(&id) {
                self.conflict(&id);
                continue;
            }
            carried.push(Carried { id, due: message.due, accepted, tried, copy: Copy::Parked });
            message.due = later;
            messages.push(message);
        }
        let mut answers = self.target.insert(messages).await?.into_iter();
        if answers.next() != Some(Inserted::Accepted) {
            return Err(Halt::Again(format!(
                "{}: the marker of a batch was there before it",
                self.target.shown
            )));
        }
        let (mut may_go, mut conflicts) = (Vec::with_capacity(carried.len()), Vec::new());
        for (mut each, answer) in carried.into_iter().zip(answers) {
            match answer {
                Inserted::Accepted => {}
                Inserted::Duplicate { due, state: State::Pending } if unpark(due).is_some() => {}
                Inserted::Duplicate { .. } => each.copy = Copy::Itself,
                Inserted::Conflict => {
                    conflicts.push(each.id);
                    continue;
                }
            }
            may_go.push(each);
        }
        self.part_conflicts(&conflicts).await?;
        Ok(may_go)
    }

    fn conflict(&mut self, id: &MessageId) {
        let (progress, out) = (self.progress, self.out);
        self.report.conflict(id, |words| progress.complain(out, words));
    }

    /// Parts ids that mean something else at the target from those whose copy there is our own, of what was cancelled at the source
    /// since and sent again with other content. Such a copy is withdrawn, so that a later pass parks another; not while a call of
    /// ours may come late, which might withdraw that one.
    async fn part_conflicts(&mut self, ids: &[MessageId]) -> Result<(), Halt> {
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
        if !outdated.is_empty() && !self.may_come_late() {
            self.presence.check()?;
            self.target.cancel(&outdated).await?;
            outdated.iter().for_each(|id| _ = self.replaced.remove(id));
            self.report.cancelled += outdated.len() as u64;
        }
        Ok(())
    }

    /// Brings copies to life or withdraws them. Gives how many came to life.
    pub(super) async fn apply(&mut self, fates: Vec<(MessageId, Fate)>) -> Result<u64, Halt> {
        let (mut live, mut gone) = (Vec::new(), Vec::new());
        for (id, fate) in fates {
            match fate {
                Fate::Live(due) => live.push((id, due)),
                Fate::Drop(why) => {
                    self.report.cancelled += u64::from(why == Why::Cancelled);
                    self.report.withdrawn += u64::from(why == Why::AtSource);
                    gone.push(id);
                }
                // A later look at what is parked comes to it.
                Fate::Stay | Fate::Dead | Fate::Forgotten => {}
            }
        }
        self.presence.check()?;
        let mut moved = 0;
        if !live.is_empty() {
            for answer in self.target.reschedule(&live).await? {
                match answer {
                    // Somebody who cancelled it here was told that it is done.
                    Changed::TooLate(State::Cancelled) | Changed::Unknown => self.report.cancelled += 1,
                    // Or fired it: then the target is at it already.
                    Changed::Done { .. } | Changed::TooLate(_) => moved += 1,
                }
            }
        }
        self.report.moved += moved;
        self.presence.check()?;
        if !gone.is_empty() {
            self.target.cancel(&gone).await?;
        }
        self.progress.read((live.len() + gone.len()) as u64);
        Ok(moved)
    }
}
