//! A store whose calls fail when they are told to.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, NodeStatus, Now, Receipt, Record, ShardStatus, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Health, Hint, Insert, Inserted, LaneStatus, Page, Query, Settle,
        Settled, StoreError, StoreErrorKind, StoreMetrics, Sweep, Totals,
    },
};
use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// A call that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailPoint {
    /// Inserts.
    Insert,
    /// Inserts: done, and their answer is lost.
    InsertAnswer,
    /// Inserts: answered once it is told to fail no more.
    InsertsWait,
    /// Everything that changes messages or lanes, other than claims: done, and answered once it is told to fail no more.
    AnswersWait,
    /// Claims.
    Claim,
    /// Settles and extends.
    Settle,
    /// Sweeps.
    Sweep,
    /// All that only look, and the question how the store is.
    Looks,
    /// The question how the store is: never answered.
    HealthHangs,
    /// The question how the store is: the thread that asks is blocked until it is told to fail no more.
    HealthBlocks,
    /// The question which lanes there are: answered once it is told to fail no more.
    LanesWait,
}

/// A store in front of another: it fails the calls that it is told to, and lets the rest through.
pub struct FailingStore {
    inner: Arc<dyn Store>,
    failing: Mutex<(BTreeSet<FailPoint>, StoreErrorKind)>,
    said: Mutex<Option<Health>>,
    refused: Mutex<Option<MessageId>>,
    asked: AtomicU64,
    changed: Notify,
    unblocked: Condvar,
}

impl FailingStore {
    /// In front of `inner`; nothing fails yet.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let failing = Mutex::new((BTreeSet::new(), StoreErrorKind::Unavailable));
        Arc::new(Self {
            inner,
            failing,
            said: Mutex::new(None),
            refused: Mutex::new(None),
            asked: AtomicU64::new(0),
            changed: Notify::new(),
            unblocked: Condvar::new(),
        })
    }

    /// From now on it says this of itself.
    pub fn report(&self, health: Health) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    /// How often it was asked how it is.
    pub fn health_asked(&self) -> u64 {
        self.asked.load(SeqCst)
    }

    /// From now on exactly these calls fail, with an error of this kind.
    pub fn fail(&self, calls: impl IntoIterator<Item = FailPoint>, kind: StoreErrorKind) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = (calls.into_iter().collect(), kind);
        self.changed.notify_waiters();
        self.unblocked.notify_all();
    }

    /// From now on every settle of a batch with this message fails.
    pub fn refuse_settles_of(&self, id: Option<MessageId>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn may_settle(&self, batch: &[Settle]) -> Result<&dyn Store, StoreError> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if batch.iter().any(|settle| refused.as_ref() == Some(&settle.receipt.id)) {
            return Err(StoreError::new(StoreErrorKind::Damaged, "one of them is refused as told"));
        }
        self.may(FailPoint::Settle)
    }

    fn block_while(&self, call: FailPoint) {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let _failing = self.unblocked.wait_while(failing, |failing| failing.0.contains(&call));
    }

    /// Waits until a call is not told to fail.
    async fn until_it_may(&self, call: FailPoint) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look, so that no change falls between the two.
            changed.as_mut().enable();
            if self.may(call).is_ok() {
                return;
            }
            changed.await;
        }
    }

    async fn answered<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.until_it_may(FailPoint::AnswersWait).await;
        answer
    }

    fn may(&self, call: FailPoint) -> Result<&dyn Store, StoreError> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.0.contains(&call) {
            return Err(StoreError::new(failing.1, format!("{call:?} fails as told")));
        }
        Ok(&*self.inner)
    }
}

#[async_trait]
impl Store for FailingStore {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.until_it_may(FailPoint::InsertsWait).await;
        let inserted = self.may(FailPoint::Insert)?.insert(now, batch).await?;
        self.may(FailPoint::InsertAnswer)?;
        self.answered(Ok(inserted)).await
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.may(FailPoint::Claim)?.claim(now, claim).await
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let settled = self.may_settle(&batch)?.settle(now, batch).await;
        self.answered(settled).await
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.may(FailPoint::Settle)?.extend(now, receipts, lease).await
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.answered(self.inner.cancel(now, ids).await).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.answered(self.inner.reschedule(now, batch).await).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.inner.expire(now, batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.answered(self.inner.replay(now, ids).await).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.answered(self.inner.purge(now, ids).await).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.may(FailPoint::Looks)?.get(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.may(FailPoint::Looks)?.list(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.answered(self.inner.set_paused(lane, paused).await).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.until_it_may(FailPoint::LanesWait).await;
        self.may(FailPoint::Looks)?.lanes(now).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.may(FailPoint::Looks)?.totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.may(FailPoint::Looks)?.forecast(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.may(FailPoint::Sweep)?.sweep(now, lanes).await
    }

    async fn hint(&self) -> Hint {
        self.inner.hint().await
    }

    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.may(FailPoint::Looks)?.nodes().await
    }

    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        self.may(FailPoint::Looks)?.shards(now).await
    }

    async fn health(&self) -> Health {
        self.asked.fetch_add(1, SeqCst);
        self.block_while(FailPoint::HealthBlocks);
        if self.may(FailPoint::HealthHangs).is_err() {
            return std::future::pending().await;
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(said) = said {
            return said;
        }
        match self.may(FailPoint::Looks) {
            Ok(inner) => inner.health().await,
            Err(error) => Health::failing(error),
        }
    }

    fn metrics(&self) -> StoreMetrics {
        self.inner.metrics()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
