//! Upkeep of the index: keeps it reachable, complete, and filled with what is due next.

use std::time::Duration;

use duly_core::{
    Lane, Now, Timestamp,
    store::{StoreError, Sweep},
};

use super::{RedisAndMysqlStore, index::IndexError};
use crate::sql::{ASKED_MAX, IndexEntry, NEAR, report_failed};

/// How often the upkeep of the index runs.
pub(super) const TEND_EVERY: Duration = Duration::from_secs(1);
/// How many entries are brought in at once, and how often in one sweep.
const BATCH_MAX: usize = 500;
const ROUNDS_MAX: usize = 10;

impl RedisAndMysqlStore {
    /// Adds to the index what was just committed and is ready soon. If that fails, the rows are marked for later.
    pub(super) async fn update_index(&self, now: Now) {
        let index_entries = self.sql.take_index_entries();
        if index_entries.is_empty() || self.health.lock().epoch.is_none() {
            return;
        }
        let hints: Vec<_> =
            soonest_of_each(&index_entries).filter_map(|entry| self.sql.hint_of(now, entry)).collect();
        let published = async {
            self.index.add(&index_entries).await?;
            self.index.publish(&hints).await
        };
        if let Err(error) = published.await {
            self.health.record_failure(&error);
            if let Err(error) = self.sql.mark_unindexed(&index_entries).await {
                tracing::debug!(%error, "index read-ahead failed; messages are found when they are due");
            }
        }
    }

    pub(super) async fn sweep_both(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let mut sweep = self.sql.sweep_leases(now, lanes).await?;
        self.update_index(now).await;
        let is_time = self.health.lock().tended.is_none_or(|at| now.mono().since(at) >= TEND_EVERY);
        let mut again = sweep.again_within.unwrap_or(TEND_EVERY).min(TEND_EVERY);
        if is_time || !self.health.relied_on(now) {
            if report_failed("upkeep of the index", self.tend(now).await) == Some(true) {
                again = Duration::ZERO;
            }
            report_failed("search for entries missing in the index", self.find_forgotten(now, lanes).await);
            report_failed("comparison of index and database", self.reconcile(now).await);
        }
        self.hint_listener.swept();
        self.sql.set_received_elsewhere(self.health.lock().epoch.is_some());
        let next = match self.next_by_index(now, lanes).await {
            Some(next) => next,
            None => self.sql.next_of(lanes).await?,
        };
        let paused = sweep.paused.clone().unwrap_or_default();
        sweep.next = next.into_iter().filter(|(lane, _)| !paused.contains(lane)).collect();
        sweep.again_within = Some(again);
        Ok(sweep)
    }

    /// When each lane is next due, if the index can be relied upon.
    async fn next_by_index(&self, now: Now, lanes: &[Lane]) -> Option<Vec<(Lane, Timestamp)>> {
        if !self.health.relied_on(now) {
            return None;
        }
        let queues = self.sql.queues_of(lanes);
        if queues.len() > ASKED_MAX {
            // A command for each would take longer than the one statement by which MySQL answers for all.
            return None;
        }
        let keys: Vec<_> = queues.iter().map(|(_, key)| *key).collect();
        let firsts =
            self.index.firsts(&keys).await.inspect_err(|error| self.health.record_failure(error)).ok()?;
        let mut next: Vec<(Lane, Timestamp)> = Vec::new();
        for ((lane, _), ready) in queues.into_iter().zip(firsts) {
            let Some(ready) = ready else { continue };
            match next.last_mut().filter(|(last, _)| last == lane) {
                Some((_, first)) => *first = ready.min(*first),
                None => next.push((lane.clone(), ready)),
            }
        }
        Some(next)
    }

    /// Makes the index complete, with what is due next. Returns whether there is more to do at once.
    pub(super) async fn tend(&self, now: Now) -> Result<bool, StoreError> {
        self.health.lock().tended = Some(now.mono());
        let (mark, run) = match self.index.mark().await {
            Ok(found) => found,
            Err(error) => {
                self.health.record_failure(&error);
                return Ok(false);
            }
        };
        let expected = self.sql.index_epoch().await?;
        let last = self.health.lock().last.clone();
        // A server that was started again may have lost its last entries. An index that was built again since
        // then has another number.
        let is_whole = |epoch: u64| last.is_none_or(|(known, of)| of == run || known != epoch);
        match mark.filter(|_| mark == expected).filter(|epoch| is_whole(*epoch)) {
            Some(epoch) => self.health.good(epoch, run),
            None if self.sql.is_first_node() => {
                if let Err(error) = self.rebuild(now, expected, run).await? {
                    self.health.record_failure(&error);
                    return Ok(false);
                }
            }
            None => {
                self.health.record_failure(&"it is not whole, and the first node has yet to build it again");
                return Ok(false);
            }
        }
        self.bring_in(now).await
    }

    /// Builds the index again: marks everything that it is to have, and then says that it is another one.
    async fn rebuild(
        &self,
        now: Now,
        known: Option<u64>,
        run: String,
    ) -> Result<Result<(), IndexError>, StoreError> {
        let epoch = known.unwrap_or_default().max(now.wall_micros()) + 1;
        tracing::info!("index rebuild started");
        self.sql.set_index_epoch(epoch).await?;
        let until = now.wall().saturating_add(self.options.horizon);
        let mut last = None;
        loop {
            let queues = self.sql.queues_behind(last, BATCH_MAX).await?;
            for queue in &queues {
                self.mark_queue(*queue, until).await?;
            }
            last = queues.last().copied();
            if last.is_none() {
                break;
            }
        }
        if let Err(error) = self.index.set_mark(epoch).await {
            return Ok(Err(error));
        }
        self.health.rebuilt();
        self.health.good(epoch, run);
        Ok(Ok(()))
    }

    /// Marks all of a queue that the index is to have.
    async fn mark_queue(&self, queue: (i64, u16), until: Timestamp) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let part = self.sql.waiting_in(queue, after.as_ref(), until, BATCH_MAX).await?;
            self.sql.mark_unindexed(&part).await?;
            if part.len() < BATCH_MAX {
                return Ok(());
            }
            after = part.last().map(|entry| entry.candidate.clone());
        }
    }

    /// Brings in what is marked, the soonest first. Returns whether there is more.
    async fn bring_in(&self, now: Now) -> Result<bool, StoreError> {
        let until = now.wall().saturating_add(self.options.horizon);
        let rounds = if self.sql.is_first_node() { ROUNDS_MAX } else { 0 };
        for _ in 0..rounds {
            let entries = self.sql.to_index(until, BATCH_MAX).await?;
            let Some(epoch) = self.health.lock().epoch.filter(|_| !entries.is_empty()) else { break };
            let published = async {
                if self.index.len().await? >= self.options.entries_max {
                    return Ok(false);
                }
                self.index.add(&entries).await?;
                Ok::<_, IndexError>(true)
            };
            match published.await {
                Ok(true) => self.sql.mark_indexed(&entries, epoch).await?,
                Ok(false) => break,
                Err(error) => {
                    self.health.record_failure(&error);
                    return Ok(false);
                }
            }
        }
        // What is left is found in MySQL when its time comes, and so is all behind it. What comes to wait from now on and is
        // not added to the index at once is not ready before `NEAR` is over.
        let left = self.sql.to_index(until, 1).await?;
        let whole = left
            .first()
            .map_or(until, |first| first.candidate.ready.saturating_sub(Duration::from_millis(1)));
        {
            let mut state = self.health.lock();
            state.whole = whole;
            state.covered = whole.min(now.wall().saturating_add(NEAR));
        }
        let is_full =
            !left.is_empty() && self.index.len().await.is_ok_and(|len| len >= self.options.entries_max);
        Ok(rounds > 0 && !left.is_empty() && !is_full)
    }
}

/// Of each queue the entry that is ready first.
fn soonest_of_each(entries: &[IndexEntry]) -> impl Iterator<Item = &IndexEntry> {
    let mut soonest: std::collections::BTreeMap<_, &IndexEntry> = std::collections::BTreeMap::new();
    for entry in entries {
        let first = soonest.entry((entry.lane_no, entry.shard)).or_insert(entry);
        if entry.candidate.ready < first.candidate.ready {
            *first = entry;
        }
    }
    soonest.into_values()
}
