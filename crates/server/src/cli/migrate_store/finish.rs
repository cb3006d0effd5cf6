//! Copies that are parked at the target: left by a run that was cut short, or in doubt.

use duly::{Query, Record, State};

use super::{
    decide::{Fate, Why, is_another, of_parked},
    end::Halt,
    moving::Move,
    parked::{self, unpark},
};
use crate::cli::clock;

/// So many are looked up at the source at once: those that wait there come with their bodies.
pub(super) const AT_ONCE: usize = 32;

/// Which look at the parked copies it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Copies whose messages wait at the source stay.
    Between,
    /// Nothing more is cancelled at the source by this run: one that only clears up withdraws those, too.
    Last,
}

impl Move<'_> {
    /// Comes back to copies that are parked at the target although no batch is under way. Gives how many stay because their
    /// messages wait or are under way at the source.
    pub(super) async fn finish_parked(&mut self, look: Look) -> Result<u64, Halt> {
        self.report.forgotten = 0;
        self.looked = clock::instant();
        let mut stay = 0;
        let mut query =
            Query { due_from: Some(parked::FIRST), limit: self.wishes.batch, ..Query::all(State::Pending) };
        loop {
            let page = self.target.list(&query).await?;
            let copies = page.records.into_iter().filter(|record| !self.marker.is(&record.message));
            let copies: Vec<_> = copies.collect();
            for some in copies.chunks(AT_ONCE) {
                stay += self.finish(look, some).await?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(stay),
            }
        }
    }

    async fn finish(&mut self, look: Look, copies: &[Record]) -> Result<u64, Halt> {
        let may_come_late = self.may_come_late();
        let ids: Vec<_> = copies.iter().map(|copy| copy.message.id.clone()).collect();
        let known = self.source.get(&ids).await?;
        let mut stay = 0;
        let mut fates = Vec::with_capacity(copies.len());
        for (copy, record) in copies.iter().zip(known) {
            let id = &copy.message.id;
            let fate = match (of_parked(record.as_ref(), &self.instants), record) {
                (Fate::Live(_), Some(record)) if is_another(&record, copy.accepted) => Fate::Forgotten,
                (fate, _) => fate.by_now(may_come_late),
            };
            let fate = match (fate, unpark(copy.message.due)) {
                (Fate::Forgotten, Some(due)) if self.wishes.deliver_forgotten => Fate::Live(due),
                (Fate::Forgotten, _) => {
                    let (progress, out) = (self.progress, self.out);
                    self.report.forget(id, |words| progress.complain(out, words));
                    continue;
                }
                // No call of an earlier run can cancel it there any more.
                (Fate::Stay, _) if self.wishes.tidy && look == Look::Last => Fate::Drop(Why::AtSource),
                (Fate::Stay, _) => {
                    stay += 1;
                    continue;
                }
                (fate, _) => fate,
            };
            fates.push((id.clone(), fate));
        }
        self.report.finished += self.apply(fates).await?;
        Ok(stay)
    }
}
