//! Claims whose answer got lost for good: the database may have made them, and nobody would work on them until their
//! leases end.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use duly_core::{MessageId, Now, State, store::StoreError};

use super::{
    SqlStore,
    connection::Session,
    count::CounterDeltas,
    fault::Fault,
    row::{Bodies, Row},
    settle::put_back,
    sweep::report_failed,
    write::Locked,
};

/// More are left to the ends of their leases.
const UNCONFIRMED_MAX: usize = 10_000;
/// Calls checked by one transaction.
const BATCH_MAX: usize = 500;

/// Messages that a failed call may have claimed.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedCalls(Mutex<HashSet<(i64, MessageId)>>);

/// The claims in doubt if a claim fails, or if its caller does not wait for the answer.
pub(super) struct UnconfirmedCall<'d> {
    unconfirmed: &'d UnconfirmedCalls,
    call: i64,
    ids: Vec<&'d MessageId>,
}

impl UnconfirmedCall<'_> {
    /// The answer has come. If the database refused, nothing is in doubt either.
    pub(super) fn answered<T>(mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.as_ref().err().is_none_or(|error| !error.kind.is_transient()) {
            self.ids.clear();
        }
        answer
    }
}

impl Drop for UnconfirmedCall<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            let mut open = self.unconfirmed.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = UNCONFIRMED_MAX.saturating_sub(open.len());
            open.extend(self.ids.iter().take(room).map(|id| (self.call, MessageId::clone(id))));
        }
    }
}

impl UnconfirmedCalls {
    /// Before a claim is made of these.
    pub(super) fn unless_answered<'d>(&'d self, call: i64, ids: Vec<&'d MessageId>) -> UnconfirmedCall<'d> {
        UnconfirmedCall { unconfirmed: self, call, ids }
    }

    /// Some of them. They stay until they are [cleared](Self::clear): whoever looks into them may give up, too.
    fn some(&self) -> HashSet<(i64, MessageId)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().take(BATCH_MAX).cloned().collect()
    }

    /// All messages that were perhaps claimed.
    fn ids(&self) -> HashSet<MessageId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, id)| id.clone()).collect()
    }

    fn clear(&self, cleared: &HashSet<(i64, MessageId)>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|unconfirmed_call| !cleared.contains(unconfirmed_call));
    }
}

impl SqlStore {
    /// Releases what was claimed without an answer: no message was delivered, so no attempt counts. Returns what is still unconfirmed
    /// because that failed.
    pub(super) async fn release_unconfirmed(&self, now: Now) -> HashSet<MessageId> {
        let released = self.try_release_unconfirmed(now).await;
        match report_failed("release of unconfirmed claims", released) {
            Some(()) => HashSet::new(),
            None => self.unconfirmed.ids(),
        }
    }

    async fn try_release_unconfirmed(&self, now: Now) -> Result<(), StoreError> {
        loop {
            let unconfirmed = self.unconfirmed.some();
            if unconfirmed.is_empty() {
                return Ok(());
            }
            self.transact(|borrowed| Box::pin(self.release(borrowed.session, now, &unconfirmed))).await?;
            self.unconfirmed.clear(&unconfirmed);
        }
    }

    async fn release(
        &self,
        session: &mut Session,
        now: Now,
        unconfirmed: &HashSet<(i64, MessageId)>,
    ) -> Result<(), Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = unconfirmed.iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        let is_own = |row: &Row| {
            row.record.state == State::InFlight && unconfirmed.contains(&(row.claim_call, row.id().clone()))
        };
        let mut rows: Vec<_> = found.rows.into_iter().filter(is_own).collect();
        let mut deltas = CounterDeltas::default();
        for row in &mut rows {
            put_back(row, &mut deltas);
        }
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.send_hints(session, now, rows.into_iter()).await?;
        self.count(session, &slot, deltas).await
    }
}
