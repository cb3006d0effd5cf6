//! Bugs on purpose: a suite that lets one of them pass proves nothing.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Lane, LeaseLoss, MessageId, Monotonic, Now, Outcome, Receipt, Record, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Hint, Holder, Insert, Inserted, LaneStatus, LeasedMessage, Page,
        Query, Settle, Settled, Settlement, StoreError, StoreMetrics, Sweep, Totals,
    },
};

/// One mistake that a store could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Claims what is due within the next second.
    ClaimsEarly,
    /// Accepts every third message without keeping it.
    ForgetsAnInsert,
    /// Takes "try again" for "done".
    LosesTheMessageOnRetry,
    /// Answers "cancelled" and does nothing.
    IgnoresCancel,
    /// Answers "moved" and does nothing.
    IgnoresReschedule,
    /// Returns every message twice.
    HandsOutTwice,
    /// Never ends a lease.
    ForgetsLostLeases,
    /// Never says when to look again.
    ForgetsToWake,
    /// Counts an unreachable target as a try.
    CountsAnOutage,
    /// Returns a claim's messages in the wrong order.
    IgnoresTheOrder,
    /// Says "done" to whoever holds a lost lease.
    TrustsEveryReceipt,
    /// Leaves a dead process's claims standing.
    KeepsClaimsOfTheDead,
    /// Does not say that a message was lost before.
    ForgetsSuspicion,
    /// Says of no cancelled message that it may have arrived.
    NeverDoubts,
    /// Does not pause.
    IgnoresPause,
    /// Takes a message that comes from another store as a new one.
    ForgetsThePast,
    /// Never forgets a lane.
    RemembersEveryLane,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::ClaimsEarly,
        Self::ForgetsAnInsert,
        Self::LosesTheMessageOnRetry,
        Self::IgnoresCancel,
        Self::IgnoresReschedule,
        Self::HandsOutTwice,
        Self::ForgetsLostLeases,
        Self::ForgetsToWake,
        Self::CountsAnOutage,
        Self::IgnoresTheOrder,
        Self::TrustsEveryReceipt,
        Self::KeepsClaimsOfTheDead,
        Self::ForgetsSuspicion,
        Self::NeverDoubts,
        Self::IgnoresPause,
        Self::ForgetsThePast,
        Self::RemembersEveryLane,
    ];
}

/// A store with a bug in it, or without one.
pub struct Planted {
    inner: Arc<dyn Store>,
    bug: Option<Bug>,
    inserts: AtomicU64,
    bodies_read: AtomicU64,
    repeat: Mutex<Vec<LeasedMessage>>,
    repeated: Mutex<BTreeSet<u64>>,
    first_seen: OnceLock<Monotonic>,
    /// Every lane that a message came for.
    lanes: Mutex<BTreeSet<Lane>>,
}

impl Planted {
    /// Plants `bug` in front of `inner`.
    pub fn new(inner: Arc<dyn Store>, bug: Option<Bug>) -> Self {
        Self {
            inner,
            bug,
            inserts: AtomicU64::new(0),
            bodies_read: AtomicU64::new(0),
            repeat: Mutex::default(),
            repeated: Mutex::default(),
            first_seen: OnceLock::new(),
            lanes: Mutex::default(),
        }
    }

    /// How many bodies were read by id.
    pub fn bodies_read(&self) -> u64 {
        self.bodies_read.load(Ordering::Relaxed)
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The time that the store is told.
    fn skewed(&self, now: Now) -> Now {
        if self.has(Bug::ForgetsLostLeases) {
            return Now::new(now.wall_micros(), *self.first_seen.get_or_init(|| now.mono()));
        }
        now
    }

    fn repeat(&self, claimed: &mut Claimed, limit: usize) {
        let (mut repeat, mut repeated) = (self.repeat.lock().unwrap(), self.repeated.lock().unwrap());
        let fresh: Vec<_> = claimed.messages.clone();
        let room = limit.saturating_sub(fresh.len()).min(repeat.len());
        claimed.messages.extend(repeat.drain(..room));
        repeat.extend(fresh.into_iter().filter(|leased| repeated.insert(leased.receipt.token)));
    }

    /// Ends the claim as the bug would have it.
    async fn settle_one(&self, now: Now, mut settle: Settle) -> Result<Settled, StoreError> {
        let mut lose = false;
        if let Settlement::Retry { attempt, .. } = &mut settle.settlement {
            if self.has(Bug::CountsAnOutage) && !attempt.outcome.counts() {
                attempt.outcome = Outcome::Failed;
            }
            lose = self.has(Bug::LosesTheMessageOnRetry);
        }
        if lose {
            settle.settlement = Settlement::Delivered { receipt: None };
        }
        let settled = self.inner.settle(now, vec![settle]).await?;
        let answer = settled.first().copied().unwrap_or(Settled::Lost);
        Ok(if self.has(Bug::TrustsEveryReceipt) { Settled::Done } else { answer })
    }
}

/// What a store that did nothing would answer.
async fn pretended(store: &dyn Store, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
    let records = store.get(ids).await?;
    let answer = |record: Option<Record>| match record {
        Some(record) if record.state == duly_core::State::Pending => {
            Changed::Done { maybe_delivered: record.maybe_delivered }
        }
        Some(record) => Changed::TooLate(record.state),
        None => Changed::Unknown,
    };
    Ok(records.into_iter().map(answer).collect())
}

#[async_trait]
impl Store for Planted {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn insert(&self, now: Now, mut batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        if self.has(Bug::ForgetsThePast) {
            batch.iter_mut().for_each(|insert| insert.past = None);
        }
        self.lanes.lock().unwrap().extend(batch.iter().map(|insert| insert.message.lane()));
        if !self.has(Bug::ForgetsAnInsert) {
            return self.inner.insert(self.skewed(now), batch).await;
        }
        let mut answers = Vec::new();
        for insert in batch {
            let forgotten = self.inserts.fetch_add(1, Ordering::Relaxed) % 3 == 2;
            if forgotten {
                answers.push(Inserted::Accepted);
            } else {
                answers.extend(self.inner.insert(now, vec![insert]).await?);
            }
        }
        Ok(answers)
    }

    async fn claim(&self, now: Now, mut claim: Claim) -> Result<Claimed, StoreError> {
        let mut now = self.skewed(now);
        if self.has(Bug::ClaimsEarly) {
            now = Now::new(now.wall_micros() + 1_000_000, now.mono());
        }
        if self.has(Bug::KeepsClaimsOfTheDead) {
            claim.holder = Holder::Client;
        }
        let limit = claim.limit;
        let mut claimed = self.inner.claim(now, claim).await?;
        match self.bug {
            Some(Bug::HandsOutTwice) => self.repeat(&mut claimed, limit),
            Some(Bug::ForgetsToWake) => claimed.next = None,
            Some(Bug::IgnoresTheOrder) => claimed.messages.reverse(),
            Some(Bug::ForgetsSuspicion) => {
                claimed.messages.iter_mut().for_each(|leased| leased.lost = LeaseLoss::None);
            }
            _ => {}
        }
        Ok(claimed)
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let now = self.skewed(now);
        let mut answers = Vec::with_capacity(batch.len());
        for settle in batch {
            answers.push(self.settle_one(now, settle).await?);
        }
        Ok(answers)
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.inner.extend(self.skewed(now), receipts, lease).await
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        if self.has(Bug::IgnoresCancel) {
            return pretended(&*self.inner, ids).await;
        }
        let mut changed = self.inner.cancel(self.skewed(now), ids).await?;
        if self.has(Bug::NeverDoubts) {
            for answer in &mut changed {
                if let Changed::Done { maybe_delivered } = answer {
                    *maybe_delivered = false;
                }
            }
        }
        Ok(changed)
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        if self.has(Bug::IgnoresReschedule) {
            let ids: Vec<_> = batch.iter().map(|(id, _)| id.clone()).collect();
            return pretended(&*self.inner, &ids).await;
        }
        self.inner.reschedule(self.skewed(now), batch).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.inner.expire(self.skewed(now), batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.inner.replay(self.skewed(now), ids).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.inner.purge(self.skewed(now), ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let records = self.inner.get(ids).await?;
        let bodies = records.iter().flatten().filter(|record| !record.message.body.is_empty()).count();
        self.bodies_read.fetch_add(bodies as u64, Ordering::Relaxed);
        Ok(records)
    }

    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_without_bodies(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        if self.has(Bug::IgnoresPause) {
            return Ok(());
        }
        self.inner.set_paused(lane, paused).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.inner.lanes(self.skewed(now)).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.inner.totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.inner.forecast(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let mut sweep = self.inner.sweep(self.skewed(now), lanes).await?;
        if self.has(Bug::ForgetsToWake) {
            sweep.next.clear();
        }
        Ok(sweep)
    }

    async fn hint(&self) -> Hint {
        self.inner.hint().await
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = self.inner.metrics();
        if self.has(Bug::RemembersEveryLane) {
            metrics.lanes = self.lanes.lock().unwrap().len() as u64;
        }
        metrics
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use duly::{Duly, ManualClock, Message, Receive};
    use duly_stores::MemoryStore;

    use super::*;
    use crate::store::{CONTRACT, Case, MEANINGS};

    /// The cases of the store suite that fail with `bug` planted.
    fn caught(bug: Option<Bug>) -> Vec<&'static str> {
        let fails = |case: &&Case| {
            let lab = crate::memory().wrapped(Arc::new(move |store| Arc::new(Planted::new(store, bug))));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            catch_unwind(AssertUnwindSafe(|| runtime.block_on((case.run)(&lab)))).is_err()
        };
        CONTRACT.iter().chain(MEANINGS).filter(fails).map(|case| case.name).collect()
    }

    #[test]
    fn the_suite_catches_every_planted_bug() {
        for bug in Bug::ALL {
            let cases = caught(Some(bug));
            println!("{bug:?}: {} cases, e.g. {:?}", cases.len(), cases.first());
            assert!(!cases.is_empty(), "no case of the suite catches {bug:?}");
        }
    }

    #[test]
    fn nothing_planted_nothing_caught() {
        assert_eq!(caught(None), [""; 0]);
    }

    #[tokio::test]
    async fn what_is_settled_or_moved_by_id_is_looked_up_without_its_body() {
        let store = Arc::new(Planted::new(Arc::new(MemoryStore::new()), None));
        let start =
            || Duly::builder().store(store.clone()).clock(Arc::new(ManualClock::new())).seed(1).start();
        let (duly, other) = (start().await.unwrap(), start().await.unwrap());
        for _ in 0..4 {
            duly.send(Message::to("order").text("x")).await.unwrap();
        }
        let held = duly.receive("order", Receive { max: 3, ..Receive::default() }).await.unwrap();
        duly.nack(&[&held[0].receipt], None).await.unwrap();
        // Another process does not remember what was handed out, and asks.
        other.ack(&[&held[1].receipt]).await.unwrap();
        other.release(&[&held[2].receipt]).await.unwrap();
        let ids = [held[0].message.id.clone(), held[2].message.id.clone()];
        duly.fire_many(&ids).await.unwrap();
        assert_eq!(store.bodies_read(), 0);
        duly.get_many(&ids).await.unwrap();
        assert_eq!(store.bodies_read(), 2);
    }
}
