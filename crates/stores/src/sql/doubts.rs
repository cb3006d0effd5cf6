//! Claims whose answer got lost for good: the database may have made them, and nobody would work on them until their
//! leases end.

use std::sync::{Mutex, PoisonError};

use duly_core::{
    MessageId, Now, State,
    store::{StoreError, StoreErrorKind},
};

use super::{
    SqlStore, count::Tally, fault::Fault, link::Session, row::Bodies, settle::put_back, work::transact,
    write::Locked,
};

/// More are left to the ends of their leases.
const DOUBTS_MAX: usize = 10_000;

/// What may be claimed by a call that failed.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Vec<(i64, MessageId)>>);

impl Doubts {
    /// A call failed. If the database refused it, nothing is in doubt.
    pub(super) fn doubt(&self, error: &StoreError, call: i64, ids: impl Iterator<Item = MessageId>) {
        if error.kind != StoreErrorKind::Unavailable {
            return;
        }
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = DOUBTS_MAX.saturating_sub(open.len());
        open.extend(ids.take(room).map(|id| (call, id)));
    }

    fn take(&self) -> Vec<(i64, MessageId)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, doubts: Vec<(i64, MessageId)>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(doubts);
    }
}

impl SqlStore {
    /// Hands back what was claimed without anybody knowing: it never went anywhere, so nothing counts.
    pub(super) async fn clear_doubts(&self, now: Now) -> Result<(), StoreError> {
        let doubts = self.doubts.take();
        if doubts.is_empty() {
            return Ok(());
        }
        let call = self.calls.next();
        let cleared = transact!(self, |session| self.hand_back(&mut session, now, call, &doubts));
        if cleared.is_err() {
            self.doubts.put_back(doubts);
        }
        cleared
    }

    async fn hand_back(
        &self,
        session: &mut Session,
        now: Now,
        call: i64,
        doubts: &[(i64, MessageId)],
    ) -> Result<(), Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = doubts.iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?;
        let is_own = |row: &super::row::Row| {
            row.record.state == State::InFlight
                && doubts.iter().any(|(call, id)| *call == row.last_call && id == row.id())
        };
        let mut rows: Vec<_> = found.rows.into_iter().filter(is_own).collect();
        let mut tally = Tally::default();
        for row in &mut rows {
            put_back(row, &mut tally);
            row.last_call = call;
        }
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.tell_of(session, now, rows.into_iter()).await?;
        self.count(session, &slot, tally).await
    }
}
