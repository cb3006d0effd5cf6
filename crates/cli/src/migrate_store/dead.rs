//! Dead letters on their way: a marker that names them, copies at the target, a purge at the source.
//!
//! A dead letter is not delivered, so its copy is not parked. The marker lists the dead letters at the target that are copies. If one is
//! replayed at the source before it is purged there, its copy is withdrawn.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use duly::{Changed, DeadReason, MessageId, Query, Record, State};
use duly_core::store::{Insert, Inserted};

use super::{
    decide::{DeadOutcome, after_purge, of_dead_copy},
    end::Halt,
    finish::{AT_ONCE, ParkedCheck},
    migration::Migration,
    parked::{Marker, unpark},
    pass::PAGE,
};

/// Dead letters in one batch: a marker names all of them.
const TOGETHER_MAX: usize = 500;

/// Dead letters whose copies may be at the target and whose batch is not over, by the marker that names them.
#[derive(Debug, Default)]
pub(super) struct Unfinished(BTreeMap<MessageId, Vec<MessageId>>);

impl Unfinished {
    pub(super) fn add(&mut self, marker: MessageId, ids: Vec<MessageId>) {
        self.0.insert(marker, ids);
    }

    /// How many dead letters there are.
    pub(super) fn count(&self) -> u64 {
        self.0.values().map(|ids| ids.len() as u64).sum()
    }

    /// Whether this is one of them: nothing is decided about it before its batch is over.
    pub(super) fn has(&self, id: &MessageId) -> bool {
        self.0.values().any(|ids| ids.contains(id))
    }
}

impl Migration<'_> {
    /// Goes over the dead letters of the source.
    pub(super) async fn pass_dead(&mut self) -> Result<(), Halt> {
        self.report.kept.dead_kept = 0;
        self.report.kept.dead_conflicts = 0;
        self.report.kept.dead_reserved = 0;
        let mut query = Query { limit: PAGE, ..Query::all(State::Dead) };
        loop {
            let page = self.source.list(&query).await?;
            let ids: Vec<_> = page.records.into_iter().filter_map(|record| self.id_to_move(record)).collect();
            let mut rest = ids.as_slice();
            while !rest.is_empty() {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Halt::Stopped);
                }
                if self.looked.elapsed() >= self.options.look_every {
                    self.finish_parked(ParkedCheck::Between).await?;
                }
                let may_come_late = self.may_come_late();
                let (records, later) = self.read(rest, State::Dead, TOGETHER_MAX).await?;
                rest = later;
                if !records.is_empty() {
                    self.carry_dead(records, may_come_late).await?;
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The id of a dead letter, if it can be moved: what is no message, or cannot be read, is worth more where it is.
    fn id_to_move(&mut self, record: Record) -> Option<MessageId> {
        let id = record.message.id;
        if self.marker.has_id(&id) {
            self.report.kept.dead_kept += 1;
            self.report.kept.dead_reserved += 1;
            self.name_reserved(&id);
            return None;
        }
        if matches!(record.reason, Some(DeadReason::Invalid | DeadReason::Damaged)) {
            self.report.kept.dead_kept += 1;
            return None;
        }
        (!self.in_doubt.unfinished.has(&id)).then_some(id)
    }

    fn dead_conflict(&mut self, id: &MessageId) {
        self.report.kept.dead_kept += 1;
        self.report.kept.dead_conflicts += 1;
        let (progress, out) = (self.progress, self.out);
        self.report.name_conflict(id, |words| progress.complain(out, words));
    }

    async fn carry_dead(&mut self, records: Vec<Record>, may_come_late: bool) -> Result<(), Halt> {
        self.presence.check()?;
        let ids: Vec<_> = records.iter().map(|record| record.message.id.clone()).collect();
        let at_target = self.target.get_without_bodies(&ids).await?;
        // What the target knows otherwise is no copy of ours, and is never withdrawn. A store takes one afresh whose delivery is past
        // retention.
        let is_free = |known: Option<&Record>| {
            known.is_none_or(|known| matches!(known.state, State::Cancelled | State::Delivered))
        };
        let (mut new, mut moved) = (Vec::new(), Vec::with_capacity(records.len()));
        for (record, known) in records.into_iter().zip(at_target) {
            if has_to_wait(known.as_ref(), may_come_late) {
                continue;
            }
            if is_free(known.as_ref()) {
                new.push(record.message.id.clone());
            }
            moved.push(record);
        }
        if moved.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = moved.iter().map(|record| record.message.id.clone()).collect();
        let marker = if new.is_empty() { None } else { Some(self.mark_dead(new).await?) };
        self.presence.check()?;
        let copies = moved.into_iter().map(Insert::moved).collect();
        let answers = self.target.insert(copies).await?;
        let (mut copied, mut is_new) = (Vec::new(), Vec::new());
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                // A pending message was copied before: that copy is withdrawn first.
                Inserted::Duplicate { due, state: State::Pending } if unpark(due).is_some() => {}
                Inserted::Conflict => self.dead_conflict(&id),
                Inserted::Accepted | Inserted::Duplicate { .. } => {
                    copied.push(id);
                    is_new.push(answer == Inserted::Accepted);
                }
            }
        }
        self.purge_copied(copied, is_new).await?;
        match marker {
            Some(marker) => self.finished_dead(&marker).await,
            None => Ok(()),
        }
    }

    /// Names dead letters at the target before any of them is copied. In a call of its own: a copy that no marker names would be taken
    /// for a dead letter of the target's, and what is replayed at the source for the same message.
    async fn mark_dead(&mut self, ids: Vec<MessageId>) -> Result<MessageId, Halt> {
        let marker = self.marker.of_dead(&ids).map_err(Halt::Failed)?;
        let id = marker.id.clone();
        if self.target.insert(vec![Insert::new(marker)]).await?.first() != Some(&Inserted::Accepted) {
            let words = format!("{}: the marker of a batch was there before it", self.target.shown);
            return Err(Halt::Again(words));
        }
        self.in_doubt.unfinished.add(id.clone(), ids);
        Ok(id)
    }

    /// Purges dead letters at the source that are at the target, some of them as new copies.
    async fn purge_copied(&mut self, ids: Vec<MessageId>, is_new: Vec<bool>) -> Result<(), Halt> {
        if ids.is_empty() {
            return Ok(());
        }
        self.presence.check()?;
        let answers = self.source.purge(&ids).await?;
        let (mut moved, mut withdrawn) = (Vec::new(), Vec::new());
        let (mut copied, mut known) = (0, 0);
        for ((id, is_new), answer) in ids.into_iter().zip(is_new).zip(answers) {
            match after_purge(answer) {
                DeadOutcome::Moved => {
                    *(if is_new { &mut copied } else { &mut known }) += 1;
                    moved.push(id);
                }
                // It was at the target before: it is the target's own.
                DeadOutcome::Withdraw => withdrawn.extend(is_new.then_some(id)),
            }
        }
        self.progress.read((moved.len() + withdrawn.len()) as u64);
        self.report.counts.dead += copied;
        self.report.counts.known += known;
        self.settle_dead(&withdrawn, &moved).await
    }

    /// Withdraws copies, and replays what was moved if that is wanted.
    async fn settle_dead(&mut self, withdrawn: &[MessageId], moved: &[MessageId]) -> Result<(), Halt> {
        self.presence.check()?;
        if !withdrawn.is_empty() {
            self.target.purge(withdrawn).await?;
            self.report.counts.withdrawn += withdrawn.len() as u64;
        }
        if self.options.replay_dead && !moved.is_empty() {
            let answers = self.target.replay(moved).await?;
            let is_done = |answer: &&Changed| matches!(answer, Changed::Done { .. });
            self.report.counts.replayed += answers.iter().filter(is_done).count() as u64;
        }
        Ok(())
    }

    /// The batch of a marker is over.
    async fn finished_dead(&mut self, marker: &MessageId) -> Result<(), Halt> {
        self.target.cancel(std::slice::from_ref(marker)).await?;
        self.in_doubt.unfinished.0.remove(marker);
        Ok(())
    }

    /// Comes back to batches of dead letters that were cut short, once no call of theirs can be done late: a late purge could meet a
    /// dead letter that was replayed and died again, and a late withdrawal its next copy. Gives how many stay in doubt.
    pub(super) async fn finish_dead(&mut self) -> Result<u64, Halt> {
        while !self.may_come_late() {
            let Some((marker, ids)) = self.in_doubt.unfinished.0.first_key_value() else { break };
            let (marker, ids) = (marker.clone(), ids.clone());
            for some in ids.chunks(AT_ONCE) {
                let (at_source, at_target) = (
                    self.source.get_without_bodies(some).await?,
                    self.target.get_without_bodies(some).await?,
                );
                let (mut moved, mut withdrawn) = (Vec::new(), Vec::new());
                for ((id, known), copy) in some.iter().zip(at_source).zip(at_target) {
                    if copy.is_none_or(|copy| copy.state != State::Dead) {
                        continue;
                    }
                    match of_dead_copy(known.as_ref()) {
                        DeadOutcome::Moved => moved.push(id.clone()),
                        DeadOutcome::Withdraw => withdrawn.push(id.clone()),
                    }
                }
                self.report.counts.dead += moved.len() as u64;
                self.settle_dead(&withdrawn, &moved).await?;
            }
            self.finished_dead(&marker).await?;
        }
        Ok(self.in_doubt.unfinished.count())
    }

    /// Reads the markers of dead letters that a run before left at the target.
    pub(super) async fn read_unfinished(&mut self, markers: &[MessageId]) -> Result<(), Halt> {
        if markers.is_empty() {
            return Ok(());
        }
        for marker in self.target.get(markers).await?.into_iter().flatten() {
            if marker.state == State::Pending {
                let ids = Marker::dead_of(&marker.message).map_err(Halt::Failed)?;
                self.in_doubt.unfinished.add(marker.message.id, ids);
                // That run was cut short, perhaps a moment ago.
                self.expect_late_calls();
            }
        }
        Ok(())
    }
}

/// Whether a dead letter is left to a later pass, by what the target knows. A copy that was parked before it died is withdrawn first: the
/// place may become free at any moment, and then take a copy that no marker names. Where a copy was withdrawn, the same call may come
/// again, late: a dead letter there would hide that.
fn has_to_wait(at_target: Option<&Record>, may_come_late: bool) -> bool {
    at_target.is_some_and(|known| match known.state {
        State::Pending => unpark(known.message.due).is_some(),
        State::Cancelled => may_come_late,
        _ => false,
    })
}
