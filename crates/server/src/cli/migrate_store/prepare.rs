//! What comes before the first batch.

use duly::{Changed, Query, State, Timestamp};
use duly_core::store::Inserted;

use super::{
    end::Halt,
    moving::Move,
    parked::{self, Marker, park},
    presence::one_store,
};
use crate::cli::Failure;

impl Move<'_> {
    pub(super) async fn prepare(&mut self) -> Result<(), Halt> {
        self.check_source().await?;
        self.put_marker().await?;
        let marker = std::slice::from_ref(self.marker.id());
        if self.source.get(marker).await?.iter().flatten().any(|record| record.state == State::Pending) {
            self.target.cancel(marker).await?;
            return Err(Halt::Failed(one_store()));
        }
        if self.wishes.tidy {
            return Ok(());
        }
        let lanes = self.source.lanes().await?;
        let paused: Vec<_> = lanes.into_iter().filter(|lane| lane.paused).collect();
        for lane in &paused {
            self.target.pause(&lane.lane).await?;
        }
        self.report.lanes_paused = paused.len() as u64;
        if self.wishes.replay_dead {
            self.replay_dead().await?;
        }
        let books = self.source.books().await?;
        self.progress.of(books.pending + books.in_flight);
        Ok(())
    }

    /// A source that is itself the target of a move which was cut short is not ready to be left.
    async fn check_source(&self) -> Result<(), Halt> {
        let query = Query { due_from: Some(parked::FIRST), limit: 2, ..Query::all(State::Pending) };
        let page = self.source.list(&query).await?;
        if page.records.iter().any(|record| record.message.id != *self.marker.id()) {
            return Err(Halt::Failed(Failure::too_late(format!(
                "a move into {} was cut short, and messages are parked there: finish that move first, or clear it up with --tidy",
                self.source.shown
            ))));
        }
        if !page.records.is_empty() {
            // Nothing but the marker of that move is left.
            self.source.cancel(std::slice::from_ref(self.marker.id())).await?;
        }
        Ok(())
    }

    /// Puts the marker at the target, or finds the one of the run before.
    async fn put_marker(&mut self) -> Result<(), Halt> {
        match self.target.insert(vec![self.marker.message()]).await?.first() {
            Some(Inserted::Accepted) => self.asked = None,
            Some(Inserted::Duplicate { due, state: State::Pending }) => self.asked = Marker::asked(*due),
            _ => {
                let (shown, id) = (&self.target.shown, self.marker.id());
                let words = format!("{shown}: a message that is not ours has the id {id}: purge it");
                return Err(Halt::Failed(Failure::too_late(words)));
            }
        }
        Ok(())
    }

    async fn replay_dead(&mut self) -> Result<(), Halt> {
        let mut query = Query { limit: self.wishes.batch, ..Query::all(State::Dead) };
        loop {
            let page = self.source.list(&query).await?;
            let ids: Vec<_> = page.records.into_iter().map(|record| record.message.id).collect();
            if !ids.is_empty() {
                let answers = self.source.replay(&ids).await?;
                let is_done = |answer: &&Changed| matches!(answer, Changed::Done { .. });
                self.report.replayed += answers.iter().filter(is_done).count() as u64;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// What is parked by now was looked at: of what will be, nothing was cancelled yet.
    pub(super) async fn mark_begin(&mut self) -> Result<(), Halt> {
        if self.asked.is_none() { self.mark(Marker::NEVER).await } else { Ok(()) }
    }

    /// Writes down, at the target, the instant of the next cancel at the source.
    pub(super) async fn mark(&mut self, at: Timestamp) -> Result<(), Halt> {
        let due = park(at).unwrap_or(parked::FIRST);
        match self.target.reschedule(&[(self.marker.id().clone(), due)]).await?.first() {
            Some(Changed::Done { .. }) => {
                self.asked = Some(at);
                Ok(())
            }
            // Somebody cancelled it. Without it, nobody could tell after a crash who cancelled what.
            _ => {
                self.put_marker().await?;
                Err(Halt::Again(format!("{}: the marker of this move was gone", self.target.shown)))
            }
        }
    }

    /// Nothing is under way any more: the marker goes.
    pub(super) async fn end(&mut self) -> Result<(), Halt> {
        self.presence.check()?;
        self.target.cancel(std::slice::from_ref(self.marker.id())).await?;
        Ok(())
    }
}
