//! One batch on its way: a parked copy at the target, a cancel at the source, then the copy comes to life.

use duly::{MessageId, Now, Record, State, Timestamp};
use duly_core::store::{Changed, Inserted};

use super::{
    decide::{Fate, Why, after_cancel},
    end::Halt,
    moving::Move,
    parked::{park, unpark},
};

/// A message whose copy is at the target.
struct Carried {
    id: MessageId,
    due: Timestamp,
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
        let carried = self.park(records).await?;
        if carried.is_empty() {
            return Ok(());
        }
        self.mark(asked.wall()).await?;
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
            fates.push((each.id, after_cancel(answer, record.as_ref(), asked.wall(), each.due)));
        }
        self.apply(fates).await.map(|_| ())
    }

    /// Puts parked copies of these at the target. Gives those that may be cancelled at the source now.
    async fn park(&mut self, records: Vec<Record>) -> Result<Vec<Carried>, Halt> {
        let mut messages = Vec::with_capacity(records.len());
        let mut carried = Vec::with_capacity(records.len());
        for Record { mut message, attempts, history, .. } in records {
            let Some(later) = park(message.due) else { continue };
            let (id, tried) = (message.id.clone(), attempts > 0 || !history.is_empty());
            carried.push(Carried { id, due: message.due, tried, copy: Copy::Parked });
            message.due = later;
            messages.push(message);
        }
        let answers = self.target.insert(messages).await?;
        let mut may_go = Vec::with_capacity(carried.len());
        for (mut each, answer) in carried.into_iter().zip(answers) {
            match answer {
                Inserted::Accepted => {}
                Inserted::Duplicate { due, state: State::Pending } if unpark(due).is_some() => {}
                Inserted::Duplicate { .. } => each.copy = Copy::Itself,
                Inserted::Conflict => {
                    let (progress, out) = (self.progress, self.out);
                    self.report.conflict(&each.id, |words| progress.complain(out, words));
                    continue;
                }
            }
            may_go.push(each);
        }
        Ok(may_go)
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
                // The next look at what is parked comes to it.
                Fate::Stay | Fate::Forgotten => {}
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
