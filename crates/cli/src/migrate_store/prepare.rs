//! Preparation of a move: everything before the first batch.

use std::{sync::atomic::Ordering, time::Duration};

use duly::{Changed, Query, Record, State};
use duly_core::{
    StoredMessage,
    store::{Insert, Inserted},
};

use super::{
    end::Halt,
    instants::Instants,
    migration::Migration,
    parked::{self, Marker, park},
    presence::one_store,
};
use crate::{Failure, clock};

/// Interval of clock readings while waiting for an instant.
const LOOK_AT_CLOCK: Duration = Duration::from_millis(200);

impl Migration<'_> {
    pub(super) async fn prepare(&mut self) -> Result<(), Halt> {
        self.check_source().await?;
        self.put_marker().await?;
        let marker = std::slice::from_ref(self.marker.id());
        if self.source.get(marker).await?.iter().flatten().any(|record| record.state == State::Pending) {
            self.target.cancel(marker).await?;
            return Err(Halt::Failed(one_store()));
        }
        if self.options.tidy {
            return Ok(());
        }
        let lanes = self.source.lanes().await?;
        let paused: Vec<_> = lanes.into_iter().filter(|lane| lane.paused).collect();
        for lane in &paused {
            self.target.pause(&lane.lane).await?;
        }
        self.report.counts.lanes_paused = paused.len() as u64;
        let totals = self.source.totals().await?;
        self.progress.of(totals.pending + totals.in_flight + totals.dead);
        Ok(())
    }

    /// Refuses a source that is the target of an unfinished move.
    async fn check_source(&self) -> Result<(), Halt> {
        let mut query = Query { due_from: Some(parked::FIRST), ..Query::all(State::Pending) };
        let mut markers = Vec::new();
        loop {
            let page = self.source.list(&query).await?;
            let is_half_done =
                |record: &Record| !self.marker.is(&record.message) || self.marker.is_of_dead(&record.message);
            if page.records.iter().any(is_half_done) {
                return Err(Halt::Failed(Failure::too_late(format!(
                    "a move into {} was cut short, and messages are parked there: finish that move first, or clear it up with --tidy",
                    self.source.shown
                ))));
            }
            markers.extend(page.records.into_iter().map(|record| record.message.id));
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        if !markers.is_empty() {
            // Only the markers of that move are left.
            self.source.cancel(&markers).await?;
        }
        Ok(())
    }

    /// Puts the marker at the target, or finds the one of the run before, and those of its batches.
    async fn put_marker(&mut self) -> Result<(), Halt> {
        self.in_doubt.instants =
            match self.target.insert(vec![Insert::new(self.marker.message())]).await?.first() {
                Some(Inserted::Accepted) => Instants::unknown(),
                Some(Inserted::Duplicate { due, state: State::Pending }) => {
                    // A run was cut short, perhaps a moment ago.
                    self.expect_late_calls();
                    match Marker::asked(*due) {
                        None => Instants::unknown(),
                        Some(at) => {
                            // Versions that had one marker for all batches wrote the instant of the latest one there.
                            let mut instants = Instants::default();
                            instants.add(at);
                            instants
                        }
                    }
                }
                _ => {
                    let (shown, id) = (&self.target.shown, self.marker.id());
                    let words = format!("{shown}: a message that is not ours has the id {id}: purge it");
                    return Err(Halt::Failed(Failure::too_late(words)));
                }
            };
        let mut of_dead = Vec::new();
        for marker in self.batch_markers().await? {
            Marker::asked(marker.due).into_iter().for_each(|at| self.in_doubt.instants.add(at));
            of_dead.extend(self.marker.is_of_dead(&marker).then_some(marker.id));
        }
        self.read_unfinished(&of_dead).await
    }

    /// The markers of batches at the target.
    async fn batch_markers(&self) -> Result<Vec<StoredMessage>, Halt> {
        let mut query = Query {
            due_from: Some(parked::FIRST),
            topic: Some(self.marker.topic().clone()),
            ..Query::all(State::Pending)
        };
        let mut markers = Vec::new();
        loop {
            let page = self.target.list(&query).await?;
            let found = page.records.into_iter().map(|record| record.message);
            let found = found.filter(|message| self.marker.is(message) && message.id != *self.marker.id());
            markers.extend(found);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(markers),
            }
        }
    }

    /// No parked copy is in doubt, so no cancel before this moment matters: those that come have markers of their own.
    pub(super) async fn mark_begin(&mut self) -> Result<(), Halt> {
        if !self.in_doubt.instants.are_unknown() {
            return Ok(());
        }
        let due = park(Marker::NEVER).unwrap_or(parked::FIRST);
        match self.target.reschedule(&[(self.marker.id().clone(), due)]).await?.first() {
            Some(Changed::Done { .. }) => {
                self.in_doubt.instants.all_known();
                Ok(())
            }
            // Somebody cancelled it. Without it, nobody could tell after a crash who cancelled what.
            _ => {
                self.put_marker().await?;
                Err(Halt::Again(format!("{}: the marker of this move was gone", self.target.shown)))
            }
        }
    }

    /// Waits until no call of this run or the one before it can be done late: a copy that is withdrawn then is not needed again.
    pub(super) async fn await_late_calls(&self) -> Result<(), Halt> {
        let latest = self.in_doubt.instants.latest().unwrap_or_else(|| self.source.now().wall());
        // Calls about dead letters have no instants of their own.
        let until = latest.saturating_add(self.options.late).max(self.in_doubt.late_until);
        if self.source.now().wall() < until {
            let span = self.options.late.as_secs();
            let words =
                format!("waiting until no call of the run before can take effect: {span} s after its last");
            self.progress.note(self.out, &words);
        }
        while self.source.now().wall() < until {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Halt::Stopped);
            }
            clock::sleep(LOOK_AT_CLOCK).await;
        }
        Ok(())
    }

    /// Removes the markers, unless copies are still parked.
    pub(super) async fn end(&mut self, copies: u64) -> Result<(), Halt> {
        self.presence.check()?;
        if copies > 0 {
            return Ok(());
        }
        let mut markers: Vec<_> = self.batch_markers().await?.into_iter().map(|marker| marker.id).collect();
        markers.push(self.marker.id().clone());
        self.target.cancel(&markers).await?;
        self.in_doubt.instants.forget();
        self.in_doubt.retired.clear();
        Ok(())
    }
}
