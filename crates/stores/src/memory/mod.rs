//! Messages in the memory of this process: for tests, and the reference that other stores are measured by.

mod claims;
mod query;
mod state;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, Now, Receipt, Record, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Insert, Inserted, LaneStatus, Page, Query, Settle, Settled,
        StoreError, StoreMetrics, Sweep, Totals,
    },
};

use state::StoreState;

/// What a [`MemoryStore`] keeps, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a delivered or cancelled message can still be asked for.
    pub retention: Duration,
    /// How many of them at most; the oldest go first.
    pub retention_max: usize,
    /// How many messages may wait at the same time.
    pub pending_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(24 * 3600),
            retention_max: 1_000_000,
            pending_max: 1_000_000_000,
        }
    }
}

/// Messages in memory. Clones share what is stored.
///
/// It is the reference of the [`Store`] port: plain maps, nothing clever, every line of the contract.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<StoreState>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    /// An empty store with these options.
    pub fn with(options: Options) -> Self {
        Self { state: Arc::new(Mutex::new(StoreState::new(options))) }
    }

    /// What a restart of the process would find, if memory survived it.
    ///
    /// Claims of [`Holder::Process`](duly_core::store::Holder::Process) are lost; those of clients go on until
    /// their lease ends, also if the monotonic clock started again.
    pub fn restart(&self, now: Now) {
        self.state().restart(now);
    }

    /// Every change is made under the lock and leaves the state whole, so a panic elsewhere does no harm to it.
    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as it is at `now`: ended leases are lost, old records forgotten.
    fn state_at(&self, now: Now) -> MutexGuard<'_, StoreState> {
        let mut state = self.state();
        state.end_leases(now);
        state.forget_old(now);
        state
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.state_at(now).insert(now, batch)
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        Ok(self.state_at(now).claim(now, &claim))
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let mut state = self.state_at(now);
        let settled = batch.into_iter().map(|settle| state.settle(now, settle)).collect();
        state.forget_old(now);
        Ok(settled)
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut state = self.state_at(now);
        Ok(receipts.iter().map(|receipt| state.extend(now, receipt, lease)).collect())
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        let mut state = self.state_at(now);
        let changed = ids.iter().map(|id| state.cancel(now, id)).collect();
        state.forget_old(now);
        Ok(changed)
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let mut state = self.state_at(now);
        Ok(batch.iter().map(|(id, due)| state.reschedule(id, *due)).collect())
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        let mut state = self.state_at(now);
        Ok(batch.iter().map(|(id, due)| state.expire(now, id, *due)).collect())
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        let mut state = self.state_at(now);
        Ok(ids.iter().map(|id| state.replay(now, id)).collect())
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        let mut state = self.state_at(now);
        Ok(ids.iter().map(|id| state.purge(id)).collect())
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let state = self.state();
        Ok(ids.iter().map(|id| state.get(id)).collect())
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        Ok(self.state().list(query))
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.state().set_paused(lane, paused);
        Ok(())
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = StoreMetrics::default();
        metrics.lanes = self.state().lanes.len() as u64;
        metrics
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        Ok(self.state_at(now).lanes(now))
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        Ok(self.state().totals())
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        Ok(self.state().forecast(from, to, buckets))
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let mut state = self.state();
        let leases_ended = state.end_leases(now);
        state.forget_old(now);
        Ok(Sweep { leases_ended, ..state.sweep(lanes) })
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
