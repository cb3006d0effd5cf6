#![doc = include_str!("docs.md")]

mod address;
mod at_once;
mod batches;
mod budget;
mod call;
mod change;
mod claim;
mod config;
mod connection;
mod connectivity;
mod count;
mod deliver;
mod exists;
mod fault;
mod forget_lanes;
mod hints;
mod insert;
mod inspect;
mod lanes;
mod list;
mod misplaced;
mod nodes;
mod open;
mod options;
pub mod outbox;
mod outbox_import;
mod query;
mod recover;
mod redis_index;
mod retention;
mod row;
mod schema;
mod settle;
mod shards;
mod statement;
mod sweep;
mod text;
mod unconfirmed;
mod unreadable_ids;
mod work;
mod write;
mod writes;

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
    address::{Server, check_address},
    config::SqlConfig,
    inspect::{Finding, Inspection, Weight, inspect},
    options::Options,
};
use self::{
    call::Calls,
    change::Change,
    connection::{Dialect, Link},
    count::Slots,
    hints::Hints,
    inspect::Safety,
    lanes::Lanes,
    nodes::Presence,
    redis_index::PendingIndexEntries,
    row::Bodies,
    unconfirmed::UnconfirmedCalls,
    writes::Writes,
};
pub(crate) use self::{
    claim::{BATCH_MAX, ClaimRequest, Owned},
    query::ASKED_MAX,
    redis_index::{IndexEntry, NEAR},
    sweep::report_failed,
};
use crate::shared::{membership::Membership, room::Room, shard_leases::Nodes, time::StoreTime};

/// Messages in a relational database: MySQL 8, MariaDB 10.6 or PostgreSQL 13, or newer ones.
pub struct SqlStore {
    link: Link,
    options: Options,
    database: Database,
    redis_index: PendingIndexEntries,
    time: StoreTime,
    nodes: Nodes,
    presence: Presence,
    lanes: Lanes,
    room: Room,
    unconfirmed: UnconfirmedCalls,
    hints: Hints,
    slots: Slots,
    calls: Calls,
    writes: Writes,
    membership: Membership,
}

/// What was found in the database when the store was opened.
#[derive(Debug)]
struct Database {
    /// What a commit outlives here.
    safety: Safety,
    /// Made with the store.
    generation: String,
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("options", &self.options)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl SqlStore {
    fn check_open(&self) -> Result<(), StoreError> {
        self.membership.check_open()
    }

    fn dialect(&self) -> Dialect {
        self.link.dialect()
    }

    /// The shard of a message: the hash of its id and nothing else.
    fn shard_of(&self, id: &MessageId) -> u16 {
        (id.hash64() % u64::from(self.options.shards)) as u16
    }
}

#[async_trait]
impl Store for SqlStore {
    fn durability(&self) -> Durability {
        match self.database.safety {
            Safety::Durable => Durability::Database,
            Safety::Volatile => Durability::Server,
        }
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.accept(now, batch).await
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.lease(now, &claim).await
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        self.settle_all(now, &batch).await
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
        self.change_all(now, ids.iter().map(|id| (id, Change::Cancel)).collect()).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.change_all(now, batch.iter().map(|(id, due)| (id, Change::Reschedule(*due))).collect()).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.change_all(now, batch.iter().map(|(id, due)| (id, Change::Expire(*due))).collect()).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_all(now, ids.iter().map(|id| (id, Change::Replay)).collect()).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_all(now, ids.iter().map(|id| (id, Change::Purge)).collect()).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records(ids, Bodies::With).await
    }

    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let records = self.records(ids, Bodies::Without).await?;
        Ok(records.into_iter().map(|record| record.map(Record::without_body)).collect())
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
        self.sweep_all(now, lanes).await
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
        metrics.full = self.writes.is_full();
        metrics.damaged = self.writes.damaged();
        metrics.lanes = self.lanes.len() as u64;
        metrics.clock_skew_us = self.time.skew_us();
        metrics
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.membership.close() {
            self.leave().await;
            self.link.close().await;
        }
        Ok(())
    }
}
