#![doc = include_str!("docs.md")]

mod claim;
mod config;
mod entry;
mod health;
mod hints;
mod index;
mod open;
mod options;
mod reconcile;
mod upkeep;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, NodeStatus, Now, Receipt, Record, ShardStatus, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Hint, Insert, Inserted, LaneStatus, Page, Query, Settle,
        Settled, StoreError, StoreMetrics, Sweep, Totals,
    },
};

pub use self::{config::RedisAndMysqlConfig, options::Options};
use self::{health::Health, index::Index, reconcile::Reconciler};
use crate::{shared::hints::HintListener, sql::SqlStore};

/// Messages in MySQL, found by an index in Redis.
pub struct RedisAndMysqlStore {
    sql: SqlStore,
    index: Index,
    options: Options,
    health: Health,
    reconciler: Reconciler,
    hint_listener: HintListener,
}

impl fmt::Debug for RedisAndMysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAndMysqlStore")
            .field("sql", &self.sql)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisAndMysqlStore {
    fn durability(&self) -> Durability {
        self.sql.durability()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let done = self.sql.insert(now, batch).await;
        self.update_index(now).await;
        done
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.lease(now, claim).await
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let done = self.sql.settle(now, batch).await;
        self.update_index(now).await;
        done
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.sql.extend(now, receipts, lease).await
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.sql.cancel(now, ids).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let done = self.sql.reschedule(now, batch).await;
        self.update_index(now).await;
        done
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.sql.expire(now, batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        let done = self.sql.replay(now, ids).await;
        self.update_index(now).await;
        done
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.sql.purge(now, ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.sql.get(ids).await
    }

    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.sql.get_without_bodies(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.sql.list(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.sql.set_paused(lane, paused).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.sql.lanes(now).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.sql.totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.sql.forecast(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.sweep_both(now, lanes).await
    }

    async fn hint(&self) -> Hint {
        self.next_hint().await
    }

    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.sql.nodes().await
    }

    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        self.sql.shards(now).await
    }

    async fn health(&self) -> duly_core::store::Health {
        self.sql.health().await
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = self.sql.metrics();
        metrics.index = Some(self.health.metrics());
        metrics
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.sql.close().await
    }
}
