//! Copies that a run which was cut short left parked at the target.

use duly::{MessageId, Query, State, Timestamp};

use super::{
    decide::{Fate, Why, of_parked},
    end::Halt,
    moving::Move,
    parked::{self, unpark},
};

/// So many are looked up at the source at once: those that wait there come with their bodies.
const AT_ONCE: usize = 32;

impl Move<'_> {
    /// Comes back to copies that are parked at the target although no batch is under way.
    pub(super) async fn finish_parked(&mut self) -> Result<(), Halt> {
        self.report.forgotten = 0;
        let mut query =
            Query { due_from: Some(parked::FIRST), limit: self.wishes.batch, ..Query::all(State::Pending) };
        loop {
            let page = self.target.list(&query).await?;
            let copies = page.records.into_iter().filter(|record| record.message.id != *self.marker.id());
            let copies: Vec<_> = copies.map(|record| (record.message.id, record.message.due)).collect();
            for some in copies.chunks(AT_ONCE) {
                self.finish(some).await?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn finish(&mut self, copies: &[(MessageId, Timestamp)]) -> Result<(), Halt> {
        let ids: Vec<_> = copies.iter().map(|(id, _)| id.clone()).collect();
        let known = self.source.get(&ids).await?;
        let mut fates = Vec::with_capacity(copies.len());
        for ((id, due), record) in copies.iter().zip(known) {
            let fate = match (of_parked(record.as_ref(), self.asked), unpark(*due)) {
                (Fate::Forgotten, Some(due)) if self.wishes.deliver_forgotten => Fate::Live(due),
                (Fate::Forgotten, _) => {
                    let (progress, out) = (self.progress, self.out);
                    self.report.forget(id, |words| progress.complain(out, words));
                    continue;
                }
                (Fate::Stay, _) if self.wishes.tidy => Fate::Drop(Why::AtSource),
                (fate, _) => fate,
            };
            fates.push((id.clone(), fate));
        }
        self.report.finished += self.apply(fates).await?;
        Ok(())
    }
}
