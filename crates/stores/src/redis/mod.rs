#![doc = include_str!("docs.md")]

mod budget;
mod call;
mod change;
mod claim;
mod config;
mod connection;
mod damaged;
mod fault;
mod health;
mod hints;
mod in_store_delivery;
mod in_store_targets;
mod insert;
mod inspect;
mod keys;
mod list;
mod nodes;
mod open;
mod options;
mod outcomes;
mod packed;
mod paused;
mod query;
mod replicas;
mod scripts;
mod settle;
mod shard_faults;
mod shards;
mod sweep;
mod unconfirmed;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, NodeStatus, Now, Receipt, Record, ShardStatus, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Health, Hint, Insert, Inserted, LaneStatus, Page, Query, Settle,
        Settled, StoreError, StoreMetrics, Sweep, Totals,
    },
};

pub use self::{
    config::RedisConfig,
    connection::{check_address, same_server},
    fault::is_gone,
    in_store_delivery::StreamLimits,
    inspect::{Finding, Inspection, inspect},
    options::Options,
};
use self::{
    connection::Link, fault::LoggedFaults, health::LastSweep, keys::Keys, outcomes::Outcomes, paused::Paused,
    replicas::Replicas, shard_faults::ShardFaults, unconfirmed::UnconfirmedCalls,
};
use crate::shared::{
    hints::HintListener, membership::Membership, room::Room, shard_leases::Nodes, time::StoreTime,
};

/// Messages in Redis 7.0 or newer.
pub struct RedisStore {
    link: Link,
    keys: Keys,
    options: Options,
    generation: Generation,
    time: StoreTime,
    nodes: Nodes,
    room: Room,
    unconfirmed: UnconfirmedCalls,
    outcomes: Outcomes,
    hints: HintListener,
    paused: Paused,
    faults: ShardFaults,
    replicas: Replicas,
    last_sweep: LastSweep,
    membership: Membership,
}

/// The name of this store's data.
#[derive(Debug)]
struct Generation {
    /// Made with the store and kept in every shard: whoever flushes Redis removes it too.
    name: String,
    logged: LoggedFaults,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, generation, .. } = self;
        f.debug_struct("RedisStore")
            .field("options", options)
            .field("generation", generation)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    fn check_open(&self) -> Result<(), StoreError> {
        self.membership.check_open()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn durability(&self) -> Durability {
        Durability::Server
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.accept(now, batch).await
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.lease(now, &claim).await
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        self.settle_all(now, batch).await
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.extend_all(now, receipts, lease).await
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change(now, "cancel", ids).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.move_all(now, "reschedule", batch).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.move_all(now, "expire", batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change(now, "replay", ids).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change(now, "purge", ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records(ids, query::Bodies::With).await
    }

    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records(ids, query::Bodies::Without).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.page(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.pause(lane, paused).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.lane_statuses(now).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.all_totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.upcoming(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let swept = self.sweep_all(now, lanes).await;
        if let Err(error) = &swept {
            self.last_sweep.record(Err(error.clone()));
        }
        swept
    }

    async fn hint(&self) -> Hint {
        self.next_hint().await
    }

    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.all_nodes().await
    }

    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        self.shard_statuses(now).await
    }

    async fn health(&self) -> Health {
        self.by_part().await
    }

    fn metrics(&self) -> StoreMetrics {
        let mut metrics = StoreMetrics::default();
        metrics.damaged = self.faults.damaged.total();
        metrics.clock_skew_us = self.time.skew_us();
        metrics
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.membership.close() {
            self.leave().await;
        }
        Ok(())
    }
}
