//! Claims whose answer got lost for good: the database may have made them, and nobody would work on them until their
//! leases end.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{MessageId, Now, State, store::StoreError};

use super::{
    SqlStore,
    batches::Batches,
    connection::{Session, Statement},
    count::CounterDeltas,
    fault::Fault,
    row::{Bodies, Row},
    settle::put_back,
    sweep::report_failed,
    write::{Locked, lists},
};

/// More are left to the ends of their leases.
const UNCONFIRMED_MAX: usize = 10_000;
/// Calls checked by one transaction.
const BATCH_MAX: usize = 500;

/// A call that claims, and a message that it may have claimed.
type UnconfirmedClaim = (i64, MessageId);

/// Messages that a failed call may have claimed.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedCalls(Mutex<BTreeSet<UnconfirmedClaim>>);

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
            let mut open = self.unconfirmed.lock();
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

    /// All of them. They stay until they are [cleared](Self::clear): whoever looks into them may give up, too.
    fn all(&self) -> Vec<UnconfirmedClaim> {
        self.lock().iter().cloned().collect()
    }

    /// All messages that were perhaps claimed. Their leases are not to be ended: that would count attempts which nobody made.
    pub(super) fn ids(&self) -> HashSet<MessageId> {
        self.lock().iter().map(|(_, id)| id.clone()).collect()
    }

    fn clear<'c>(&self, cleared: impl IntoIterator<Item = &'c UnconfirmedClaim>) {
        let mut open = self.lock();
        for claim in cleared {
            open.remove(claim);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<UnconfirmedClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqlStore {
    /// Releases what was claimed without an answer: no message was delivered, so no attempt counts. What cannot be released now is left for
    /// the next sweep, and keeps no other from being released.
    pub(super) async fn release_unconfirmed(&self, now: Now) {
        report_failed("release of unconfirmed claims", self.try_release_unconfirmed(now).await);
    }

    async fn try_release_unconfirmed(&self, now: Now) -> Result<(), StoreError> {
        let mut batches = Batches::of(self.unconfirmed.all(), BATCH_MAX);
        while let Some(batch) = batches.next() {
            let released =
                self.transact(|borrowed| Box::pin(self.release(borrowed.session, now, &batch))).await;
            match released {
                Ok(undecided) => {
                    self.unconfirmed.clear(batch.iter().filter(|(_, id)| !undecided.contains(id)));
                }
                Err(error) => batches.failed(batch, error)?,
            }
        }
        batches.outcome()
    }

    /// Returns those of which nothing is known yet, because another transaction holds their rows: maybe that of the claim itself, which
    /// may still be committed.
    async fn release(
        &self,
        session: &mut Session,
        now: Now,
        unconfirmed: &[UnconfirmedClaim],
    ) -> Result<HashSet<MessageId>, Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = unconfirmed.iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::Skip).await?;
        let seen: HashSet<_> = found.rows.iter().map(|row| row.id().as_str()).collect();
        let seen_bad: HashSet<_> = found.bad.iter().map(|bad| bad.id.as_str()).collect();
        ids.retain(|id| !seen.contains(id.as_str()) && !seen_bad.contains(id.as_str()));
        let undecided = self.existing(session, &ids).await?;
        let claims: HashSet<_> = unconfirmed.iter().map(|(call, id)| (*call, id)).collect();
        let is_own =
            |row: &Row| row.record.state == State::InFlight && claims.contains(&(row.claim_call, row.id()));
        let mut rows: Vec<_> = found.rows.into_iter().filter(is_own).collect();
        let mut deltas = CounterDeltas::default();
        for row in &mut rows {
            put_back(row, &mut deltas);
        }
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.send_hints(session, now, rows.into_iter()).await?;
        self.count(session, &slot, deltas).await?;
        Ok(undecided)
    }

    /// Those of the ids that have rows, whoever holds them.
    async fn existing(&self, session: &mut Session, ids: &[&MessageId]) -> Result<HashSet<MessageId>, Fault> {
        let mut found = HashSet::new();
        for list in lists(ids) {
            let mut select =
                Statement::new(self.dialect(), "SELECT message_id FROM delay_message WHERE message_id IN (");
            select.bind_all(list).push(")");
            for row in session.rows(select).await? {
                found.extend(self.id_in(&row, 0)?);
            }
        }
        Ok(found)
    }
}
