//! The store as a process far away: slow, and at times not there. Every claim passes the ledger.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Clock, Lane, MessageId, Now, Receipt, Record, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Hint, Insert, Inserted, LaneStatus, Page, Query, Settle,
        Settled, Settlement, StoreError, StoreErrorKind, Sweep, Totals,
    },
};

use super::{Fault, dice::Dice, ledger::Broken, script::SINKS, world::World};

/// A store that fails when the world lets it.
pub(super) struct SlowStore {
    inner: Arc<dyn Store>,
    world: Arc<World>,
    dice: Mutex<Dice>,
}

impl SlowStore {
    pub(super) fn new(inner: Arc<dyn Store>, world: Arc<World>, life: u64) -> Self {
        let dice = Mutex::new(world.dice(0x0500 + life));
        Self { inner, world, dice }
    }

    /// The request on its way to the store: at times slow, at times it fails.
    async fn request(&self) -> Result<(), StoreError> {
        self.world.called().await;
        if !self.world.may(Fault::SlowStore) {
            return Ok(());
        }
        let roll = self.dice.lock().unwrap().below(100);
        match roll {
            0..4 => Err(StoreError::new(StoreErrorKind::Unavailable, "the store is unreachable")),
            4..40 => {
                self.delay(0, 60).await;
                Ok(())
            }
            40..46 => {
                self.delay(200, 1500).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The reply on its way back: at times slow. The store has done its work then.
    async fn reply(&self) {
        if self.world.may(Fault::SlowStore) && self.dice.lock().unwrap().chance(30) {
            self.delay(0, 300).await;
        }
    }

    async fn delay(&self, min: u64, max: u64) {
        let span = self.dice.lock().unwrap().millis(min, max);
        self.world.sleep(span).await;
    }
}

#[async_trait]
impl Store for SlowStore {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.request().await?;
        let answer = self.inner.insert(now, batch).await;
        self.reply().await;
        answer
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.request().await?;
        let lane = claim.lane.clone();
        let claimed = self.inner.claim(now, claim).await?;
        {
            let mut ledger = self.world.ledger();
            if ledger.paused && lane.to_string() == SINKS[0] && !claimed.messages.is_empty() {
                ledger.break_promise(Broken::Answer(format!("{lane} is paused, and gave {claimed:?}")));
            }
            if now.mono() > self.world.clock.now().mono() {
                ledger.break_promise(Broken::Early("a claim from the future".into()));
            }
            for leased in &claimed.messages {
                self.world.trace(|| {
                    format!("claimed {} try {} {:?}", leased.message.id, leased.attempt, leased.lost)
                });
                ledger.claimed(&leased.message.id, now.wall());
            }
        }
        self.reply().await;
        Ok(claimed)
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        self.request().await?;
        let retries = batch.iter().filter_map(|settle| match settle.settlement {
            Settlement::Retry { at, .. } | Settlement::Defer { at } => Some(at),
            _ => None,
        });
        if let Some(at) = retries.max() {
            let mut ledger = self.world.ledger();
            ledger.latest = ledger.latest.max(at);
        }
        let traced = batch
            .iter()
            .map(|settle| (settle.receipt.id.clone(), settle.settlement.clone()))
            .collect::<Vec<_>>();
        let answer = self.inner.settle(now, batch).await;
        self.world.trace(|| format!("settled {traced:?}: {answer:?}"));
        self.reply().await;
        answer
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.request().await?;
        let answer = self.inner.extend(now, receipts, lease).await;
        self.reply().await;
        answer
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.request().await?;
        let answer = self.inner.cancel(now, ids).await;
        self.reply().await;
        answer
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.request().await?;
        let answer = self.inner.reschedule(now, batch).await;
        self.reply().await;
        answer
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.request().await?;
        let answer = self.inner.expire(now, batch).await;
        self.reply().await;
        answer
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.request().await?;
        self.inner.replay(now, ids).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.request().await?;
        self.inner.purge(now, ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.request().await?;
        self.inner.get(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.request().await?;
        self.inner.list(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.request().await?;
        self.inner.set_paused(lane, paused).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        // Asked when the engine starts; a start that fails is another test.
        self.inner.lanes(now).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.inner.totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.request().await?;
        self.inner.forecast(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.request().await?;
        let answer = self.inner.sweep(now, lanes).await;
        if let Ok(sweep) = &answer
            && sweep.leases_ended > 0
        {
            self.world.trace(|| format!("swept {sweep:?}"));
        }
        self.reply().await;
        answer
    }

    async fn hint(&self) -> Hint {
        self.inner.hint().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
