//! Copies that are parked at the target: left by a run that was cut short, or in doubt.

use duly::{Query, Record, State};

use super::{
    decide::{CopyOutcome, WithdrawReason, is_another, of_parked},
    end::Halt,
    migration::Migration,
    parked::{self, unpark},
};
use crate::clock;

/// Messages looked up at the source by one call. Pending ones are read with their bodies.
pub(super) const AT_ONCE: usize = 32;

/// When the parked copies are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParkedCheck {
    /// Copies whose messages wait at the source stay.
    Between,
    /// This run cancels nothing more at the source, because it only tidies: such copies are withdrawn, too.
    Last,
}

impl Migration<'_> {
    /// Checks copies that are parked at the target while no batch is under way. Returns how many stay because their messages are
    /// pending or in flight at the source.
    pub(super) async fn finish_parked(&mut self, check: ParkedCheck) -> Result<u64, Halt> {
        self.report.kept.forgotten = 0;
        self.looked = clock::instant();
        let mut stay = 0;
        let mut query =
            Query { due_from: Some(parked::FIRST), limit: self.options.batch, ..Query::all(State::Pending) };
        loop {
            let page = self.target.list(&query).await?;
            let copies = page.records.into_iter().filter(|record| !self.marker.is(&record.message));
            let copies: Vec<_> = copies.collect();
            for some in copies.chunks(AT_ONCE) {
                stay += self.finish(check, some).await?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(stay),
            }
        }
    }

    async fn finish(&mut self, check: ParkedCheck, copies: &[Record]) -> Result<u64, Halt> {
        let may_come_late = self.may_come_late();
        let ids: Vec<_> = copies.iter().map(|copy| copy.message.id.clone()).collect();
        let known = self.source.get(&ids).await?;
        let mut stay = 0;
        let mut outcomes = Vec::with_capacity(copies.len());
        for (copy, record) in copies.iter().zip(known) {
            let id = &copy.message.id;
            let outcome = match (of_parked(record.as_ref(), &self.in_doubt.instants), record) {
                (CopyOutcome::Live(_), Some(record)) if is_another(&record, copy.accepted) => {
                    CopyOutcome::Forgotten
                }
                (outcome, _) => outcome.by_now(may_come_late),
            };
            let outcome = match (outcome, unpark(copy.message.due)) {
                (CopyOutcome::Forgotten, Some(due)) if self.options.deliver_forgotten => {
                    CopyOutcome::Live(due)
                }
                (CopyOutcome::Forgotten, _) => {
                    let (progress, out) = (self.progress, self.out);
                    self.report.forget(id, |words| progress.complain(out, words));
                    continue;
                }
                // No call of an earlier run can cancel it there any more.
                (CopyOutcome::Stay, _) if self.options.tidy && check == ParkedCheck::Last => {
                    CopyOutcome::Drop(WithdrawReason::AtSource)
                }
                (CopyOutcome::Stay, _) => {
                    stay += 1;
                    continue;
                }
                (outcome, _) => outcome,
            };
            outcomes.push((id.clone(), outcome));
        }
        self.report.counts.finished += self.apply(outcomes).await?;
        Ok(stay)
    }
}
