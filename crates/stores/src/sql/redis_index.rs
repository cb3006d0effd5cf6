//! The interface of the database for an index in Redis: see `redis_and_mysql`.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::{MessageId, Timestamp, store::StoreError};

use super::{
    SqlStore,
    connection::{ServerRow, Session, Statement},
    fault::Fault,
    row::{Row, lane_and_shard, queue_no},
    write::lists,
};
use crate::shared::claim_order::{ClaimOrder, rank};

/// Messages ready within this are indexed at once, and not looked for afterwards.
pub(crate) const NEAR: Duration = Duration::from_secs(10);
/// More changes than this are left to the search for what the index does not have.
const INDEX_ENTRIES_MAX: usize = 20_000;
/// Where the number of the index is kept: it changes when the index was lost.
const EPOCH: &str = "index_epoch";

/// A message that waits, as an index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) lane_no: i64,
    pub(crate) shard: u16,
    pub(crate) candidate: ClaimOrder,
    pub(crate) version: i64,
}

/// Changes for the index in Redis, if there is one beside the database.
#[derive(Debug)]
pub(super) struct PendingIndexEntries {
    /// Nothing is noted without an index.
    pub(super) is_kept: bool,
    /// Messages that became pending since the index was last updated.
    index_entries: Mutex<Vec<IndexEntry>>,
}

impl PendingIndexEntries {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, index_entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IndexEntry>> {
        self.index_entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SqlStore {
    /// Notes entries of committed messages.
    pub(super) fn add_index_entries(&self, new: Vec<IndexEntry>) {
        if !new.is_empty() {
            let mut index_entries = self.redis_index.lock();
            let room = INDEX_ENTRIES_MAX.saturating_sub(index_entries.len());
            index_entries.extend(new.into_iter().take(room));
        }
    }

    /// Takes the entries noted since the last call.
    pub(crate) fn take_index_entries(&self) -> Vec<IndexEntry> {
        std::mem::take(&mut self.redis_index.lock())
    }

    pub(super) fn entry_of(&self, row: &Row) -> IndexEntry {
        let message = &row.record.message;
        let candidate = ClaimOrder {
            ready: row.record.ready,
            rank: rank(message.priority),
            id: message.id.clone(),
            lost: row.lost != duly_core::LeaseLoss::None,
        };
        // A row that was there before is written with the next version.
        let version = if row.is_new { row.version } else { row.version + 1 };
        IndexEntry { lane_no: row.lane_no, shard: self.shard_of(&message.id), candidate, version }
    }

    /// Nothing if what stands in the place of the id is none: a sweep takes that row out of its queue.
    fn read_entry(&self, row: &ServerRow) -> Result<Option<IndexEntry>, Fault> {
        let Some(id) = self.id_in(row, 0)? else { return Ok(None) };
        let ready = Timestamp::from_millis(row.int(2)? as u64 / 1000);
        let (shard, queue) = (self.shard_of(&id), row.int(1)?);
        let candidate = ClaimOrder { ready, rank: row.int(3)? as u8, lost: row.int(4)? != 0, id };
        Ok(Some(IndexEntry { lane_no: queue / 256, shard, candidate, version: row.int(5)? }))
    }

    /// Some of what the index is to have by `until` and has not, the soonest first.
    pub(crate) async fn to_index(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, StoreError> {
        let select = || {
            let mut select = Statement::new(self.dialect(), ENTRY);
            select.push("unindexed_at <= ").bind(until.as_millis() as i64 * 1000);
            select.push(" ORDER BY unindexed_at LIMIT ").bind(limit as i64);
            select
        };
        let rows = self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await?;
        // One that is being claimed at this moment waits nowhere.
        let waiting =
            rows.iter().filter(|row| row.maybe_int(1).ok().flatten().is_some_and(|queue| queue > 0));
        Ok(waiting.filter_map(|row| self.read_entry(row).transpose()).collect::<Result<_, _>>()?)
    }

    /// The index has these entries, if it still had that number when they were added.
    pub(crate) async fn mark_indexed(&self, entries: &[IndexEntry], epoch: u64) -> Result<(), StoreError> {
        for part in entries.chunks(100) {
            self.transact(|borrowed| Box::pin(self.mark_in_one(borrowed.session, part, epoch))).await?;
        }
        Ok(())
    }

    async fn mark_in_one(
        &self,
        session: &mut Session,
        entries: &[IndexEntry],
        epoch: u64,
    ) -> Result<(), Fault> {
        // A node that gives the index up changes its number first: from then on, no message counts as indexed.
        let mut select = Statement::new(self.dialect(), "SELECT value FROM duly_store WHERE name = ");
        select.bind(EPOCH).push_as(" LOCK IN SHARE MODE", " FOR SHARE");
        let known = session.rows(select).await?.first().map(|row| row.text(0)).transpose()?;
        if known.as_deref() != Some(epoch.to_string().as_str()) {
            return Ok(());
        }
        let versions: HashMap<_, _> =
            entries.iter().map(|entry| (entry.candidate.id.as_str(), entry.version)).collect();
        let ids: Vec<_> = entries.iter().map(|entry| &entry.candidate.id).collect();
        let mut same = Vec::new();
        for list in lists(&ids) {
            let mut select = Statement::new(
                self.dialect(),
                "SELECT message_id, version FROM delay_message WHERE message_id IN (",
            );
            select.bind_all(list).push(") FOR UPDATE SKIP LOCKED");
            for row in session.rows(select).await? {
                let id = row.text(0)?;
                if versions.get(id.as_str()) == Some(&row.int(1)?) {
                    same.extend(MessageId::parse(&id));
                }
            }
        }
        let same: Vec<_> = same.iter().collect();
        for list in lists(&same) {
            let mut update = Statement::new(
                self.dialect(),
                "UPDATE delay_message SET unindexed_at = NULL WHERE message_id IN (",
            );
            update.bind_all(list).push(")");
            session.run(update).await?;
        }
        Ok(())
    }

    /// Whether each entry still matches its row.
    pub(crate) async fn still_waiting(&self, entries: &[IndexEntry]) -> Result<Vec<bool>, StoreError> {
        let mut known: HashMap<MessageId, IndexEntry> = HashMap::new();
        for part in entries.chunks(100) {
            let ids: Vec<_> = part.iter().map(|entry| &entry.candidate.id).collect();
            let select = || {
                let mut select = Statement::new(self.dialect(), ENTRY);
                select.push("message_id IN (");
                select.bind_all(lists(&ids).next().unwrap_or_default()).push(") AND queue_no > 0");
                select
            };
            for row in self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await? {
                if let Some(entry) = self.read_entry(&row)? {
                    known.insert(entry.candidate.id.clone(), entry);
                }
            }
        }
        Ok(entries.iter().map(|entry| known.get(&entry.candidate.id) == Some(entry)).collect())
    }

    /// Some of what waits in one queue until `until`, in order, behind `after`.
    pub(crate) async fn waiting_in(
        &self,
        (lane_no, shard): (i64, u16),
        after: Option<&ClaimOrder>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<IndexEntry>, StoreError> {
        let from = after.map_or(0, |candidate| candidate.ready.as_millis() as i64 * 1000);
        let select = || {
            let mut select = Statement::new(self.dialect(), ENTRY);
            select.push("queue_no = ").bind(queue_no(lane_no, shard)).push(" AND queue_at >= ").bind(from);
            select.push(" AND queue_at <= ").bind(until.as_millis() as i64 * 1000);
            if let Some(ClaimOrder { rank, id, .. }) = after {
                select.push(" AND (queue_at > ").bind(from).push(" OR queue_rank > ").bind(i64::from(*rank));
                select.push(" OR (queue_rank = ").bind(i64::from(*rank));
                select.push(" AND message_id > ").bind(id.as_str()).push("))");
            }
            select.push(" ORDER BY queue_at, queue_rank, message_id LIMIT ").bind(limit as i64);
            select
        };
        let rows = self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await?;
        Ok(rows.iter().filter_map(|row| self.read_entry(row).transpose()).collect::<Result<_, _>>()?)
    }

    /// Marks rows whose entries are no longer in the index.
    pub(crate) async fn mark_unindexed(&self, entries: &[IndexEntry]) -> Result<(), StoreError> {
        let ids: Vec<_> = entries.iter().map(|entry| &entry.candidate.id).collect();
        self.transact(|borrowed| {
            Box::pin(async {
                let session = borrowed.session;
                for list in lists(&ids) {
                    let mut update = Statement::new(
                        self.dialect(),
                        "UPDATE delay_message SET unindexed_at = queue_at WHERE queue_no > 0 AND message_id IN (",
                    );
                    update.bind_all(list).push(")");
                    session.run(update).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// The number of the index, if there was one.
    pub(crate) async fn index_epoch(&self) -> Result<Option<u64>, StoreError> {
        let select = || {
            let mut select = Statement::new(self.dialect(), "SELECT value FROM duly_store WHERE name = ");
            select.bind(EPOCH);
            select
        };
        let rows = self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await?;
        let text = rows.first().map(|row| row.text(0)).transpose()?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    /// Gives the index another number: entries added under the number before are not relied on.
    pub(crate) async fn set_index_epoch(&self, epoch: u64) -> Result<(), StoreError> {
        let insert = || {
            let mut insert = Statement::new(self.dialect(), "INSERT INTO duly_store (name, value) VALUES (");
            insert.bind(EPOCH).push(", ").bind(epoch.to_string().as_str()).push(")");
            insert.push_as(
                " ON DUPLICATE KEY UPDATE value = VALUES(value)",
                " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
            );
            insert
        };
        self.transact(|borrowed| Box::pin(borrowed.session.run(insert()))).await?;
        Ok(())
    }

    /// Whether this node does the maintenance that one node does for all.
    pub(crate) fn is_first_node(&self) -> bool {
        self.presence.is_first()
    }

    /// The generation of the store.
    pub(crate) fn generation(&self) -> &str {
        &self.database.generation
    }

    /// The next queues behind `after` that hold something, by lane and shard; none: there are no more.
    pub(crate) async fn queues_behind(
        &self,
        after: Option<(i64, u16)>,
        limit: usize,
    ) -> Result<Vec<(i64, u16)>, StoreError> {
        let after = after.map_or(0, |(lane_no, shard)| queue_no(lane_no, shard));
        let queues = self.queues_after(after, limit).await?;
        Ok(queues.into_iter().map(|(queue, _)| lane_and_shard(queue)).collect())
    }
}

/// The beginning of a query of what waits, as [`SqlStore::read_entry`] reads it.
const ENTRY: &str =
    "SELECT message_id, queue_no, queue_at, queue_rank, lost, version FROM delay_message WHERE ";
