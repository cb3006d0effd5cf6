//! Compares index and database continuously, in small steps.

use std::sync::{Mutex, PoisonError};

use duly_core::{Lane, Now, store::StoreError};

use super::{RedisAndMysqlStore, entry};
use crate::shared::claim_order::ClaimOrder;

/// Entries and rows compared per step.
const STEP: usize = 200;
/// Queues visited per step.
const QUEUES_MAX: usize = 64;

/// Position of the comparison.
#[derive(Debug, Default)]
pub(super) struct Reconciler(Mutex<Position>);

#[derive(Debug, Default, Clone)]
struct Position {
    /// The shard of the index, and the last member that was looked at.
    shard: u16,
    member: Vec<u8>,
    /// The queue, by lane and shard, and the last row that was looked at. Without a row, the queue is done.
    queue: Option<(i64, u16)>,
    candidate: Option<ClaimOrder>,
    /// The last queue that was looked at because it was overdue.
    overdue: (i64, u16),
}

impl RedisAndMysqlStore {
    /// Whatever is overdue in MySQL is in the index, too, or comes there now, a bounded number of queues at a time.
    pub(super) async fn find_forgotten(&self, now: Now, lanes: &[Lane]) -> Result<(), StoreError> {
        if !self.health.relied_on(now) {
            return Ok(());
        }
        let mut overdue = self.sql.overdue_in(now.wall(), lanes).await?;
        // As many as a step may take, and the others in the next steps: a lane that nobody drains is always overdue.
        let last = self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner).overdue;
        overdue.sort_unstable();
        let behind = overdue.partition_point(|queue| *queue <= last);
        overdue.rotate_left(behind);
        overdue.truncate(QUEUES_MAX);
        if let Some(last) = overdue.last() {
            self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner).overdue = *last;
        }
        for queue in overdue {
            let forgotten = self.sql.waiting_in(queue, None, now.wall(), STEP).await?;
            match self.index.add(&forgotten).await {
                Ok(added) => self.health.restored(added),
                Err(error) => {
                    self.health.record_failure(&error);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One step through the entries and one through the rows.
    pub(super) async fn reconcile(&self, now: Now) -> Result<(), StoreError> {
        if !self.health.relied_on(now) {
            return Ok(());
        }
        let mut position = self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.compare_entries(&mut position).await?;
        // One node is enough for the rows: what it adds is there for all.
        if self.sql.is_first_node() {
            self.compare_rows(&mut position).await?;
        }
        let mut known = self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Position { overdue: known.overdue, ..position };
        Ok(())
    }

    /// An entry without a row goes.
    async fn compare_entries(&self, position: &mut Position) -> Result<(), StoreError> {
        let entries = match self.index.page(position.shard, &position.member, STEP).await {
            Ok(entries) => entries,
            Err(error) => {
                self.health.record_failure(&error);
                return Ok(());
            }
        };
        match entries.last().filter(|_| entries.len() == STEP) {
            Some(last) => position.member = entry::write(last),
            None => {
                position.shard = (position.shard + 1) % self.options.sql.shards;
                position.member.clear();
            }
        }
        let waiting = self.sql.still_waiting(&entries).await?;
        let stale: Vec<_> =
            entries.into_iter().zip(waiting).filter(|(_, waits)| !waits).map(|(entry, _)| entry).collect();
        match self.index.remove(&stale).await {
            Ok(removed) => self.health.dropped(removed),
            Err(error) => self.health.record_failure(&error),
        }
        Ok(())
    }

    /// A row without an entry comes back.
    async fn compare_rows(&self, position: &mut Position) -> Result<(), StoreError> {
        let until = self.health.lock().whole;
        let mut queues: Vec<_> =
            position.queue.filter(|_| position.candidate.is_some()).into_iter().collect();
        queues.extend(self.sql.queues_behind(position.queue, QUEUES_MAX).await?);
        if queues.is_empty() && position.queue.take().is_some() {
            // Once around.
            queues = self.sql.queues_behind(None, QUEUES_MAX).await?;
        }
        for queue in queues {
            let rows = self.sql.waiting_in(queue, position.candidate.as_ref(), until, STEP).await?;
            match self.index.add(&rows).await {
                Ok(added) => self.health.restored(added),
                Err(error) => {
                    self.health.record_failure(&error);
                    return Ok(());
                }
            }
            position.queue = Some(queue);
            position.candidate =
                rows.last().filter(|_| rows.len() == STEP).map(|last| last.candidate.clone());
            if position.candidate.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }
}
