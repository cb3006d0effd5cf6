//! One of the two stores: what is asked of it, and what a failure means for the move.

use std::{sync::Arc, time::Duration};

use duly::{
    Changed, Clock, Lane, LaneStatus, MessageId, Now, Page, Query, Record, Store, StoreError, StoreErrorKind,
    Timestamp, Totals,
};
use duly_core::store::{Insert, Inserted};

use crate::Failure;

/// A store, and the time it goes by.
pub(super) struct End {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    /// Its address without credentials.
    pub(super) shown: String,
}

/// Why a round of the move ended before its time.
#[derive(Debug)]
pub(super) enum Halt {
    /// Temporary: the round starts again a little later.
    Again(String),
    /// Permanent.
    Failed(Failure),
    /// The user stopped it.
    Stopped,
}

impl End {
    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    fn halt(&self, error: &StoreError) -> Halt {
        let words = format!("{}: {error}", self.shown);
        match error.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::Unanswered | StoreErrorKind::TooManyInFlight => {
                Halt::Again(words)
            }
            _ => Halt::Failed(Failure::failed(words)),
        }
    }

    fn checked<T>(&self, answer: Result<T, StoreError>) -> Result<T, Halt> {
        answer.map_err(|error| self.halt(&error))
    }

    pub(super) async fn insert(&self, batch: Vec<Insert>) -> Result<Vec<Inserted>, Halt> {
        self.checked(self.store.insert(self.now(), batch).await)
    }

    /// Cancels with the given instant, which identifies our cancel.
    pub(super) async fn cancel_at(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, Halt> {
        self.checked(self.store.cancel(now, ids).await)
    }

    pub(super) async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Changed>, Halt> {
        self.cancel_at(self.now(), ids).await
    }

    pub(super) async fn reschedule(&self, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, Halt> {
        self.checked(self.store.reschedule(self.now(), batch).await)
    }

    pub(super) async fn replay(&self, ids: &[MessageId]) -> Result<Vec<Changed>, Halt> {
        self.checked(self.store.replay(self.now(), ids).await)
    }

    pub(super) async fn purge(&self, ids: &[MessageId]) -> Result<Vec<Changed>, Halt> {
        self.checked(self.store.purge(self.now(), ids).await)
    }

    pub(super) async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, Halt> {
        self.checked(self.store.get_without_bodies(ids).await)
    }

    pub(super) async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, Halt> {
        self.checked(self.store.get(ids).await)
    }

    pub(super) async fn list(&self, query: &Query) -> Result<Page, Halt> {
        self.checked(self.store.list(query).await)
    }

    pub(super) async fn pause(&self, lane: &Lane) -> Result<(), Halt> {
        self.checked(self.store.set_paused(lane, true).await)
    }

    pub(super) async fn lanes(&self) -> Result<Vec<LaneStatus>, Halt> {
        self.checked(self.store.lanes(self.now()).await)
    }

    pub(super) async fn totals(&self) -> Result<Totals, Halt> {
        self.checked(self.store.totals().await)
    }

    /// Sweeps the store: sends a heartbeat, ends expired leases and imports rows that others wrote, because no other process may do so.
    /// Returns whether it must be called again at once.
    pub(super) async fn sweep(&self) -> Result<bool, Halt> {
        let sweep = self.checked(self.store.sweep(self.now(), &[]).await)?;
        Ok(sweep.again_within == Some(Duration::ZERO))
    }

    /// The names of the nodes that share it.
    pub(super) async fn nodes(&self) -> Result<Vec<String>, Halt> {
        let nodes = self.checked(self.store.nodes().await)?;
        Ok(nodes.into_iter().filter(|node| !node.this).map(|node| node.name).collect())
    }
}
