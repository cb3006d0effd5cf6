//! Looking without touching: one message, the lanes, what comes due, and the sweep.

use std::time::Duration;

use duly_core::{
    Lane, MessageId, Now, Record, Timestamp,
    store::{LaneStatus, StoreError, Sweep},
};

use super::{Shared, engine::Engine, wheel::Opened};

impl Shared {
    pub(super) async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let now = self.engine().now.wall();
            records.push(match self.find(id).await? {
                Some(found) => {
                    let state = found.state();
                    Some(found.stored()?.into_record(state))
                }
                None => self.find_ended(id, now)?.map(|(record, _)| record),
            });
        }
        self.sync_barrier().await?;
        Ok(records)
    }

    pub(super) fn lane_statuses(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        let mut engine = self.engine();
        engine.check_open()?;
        if engine.tick(now) {
            self.background.notify_one();
        }
        let statuses = engine
            .lanes
            .iter()
            .filter(|state| state.paused || state.pending > 0 || state.in_flight > 0 || state.dead > 0);
        Ok(statuses
            .map(|state| {
                let mut status = LaneStatus::empty(state.lane.clone());
                (status.paused, status.pending, status.ready) =
                    (state.paused, state.pending, state.ready(now.wall()));
                (status.in_flight, status.dead) = (state.in_flight, state.dead);
                status.oldest_ready = state.first().map(|key| key.ready).filter(|ready| *ready <= now.wall());
                status
            })
            .collect())
    }

    pub(super) fn forecast(
        &self,
        from: Timestamp,
        to: Timestamp,
        buckets: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let engine = self.engine();
        engine.check_open()?;
        let mut counts = vec![0; buckets];
        let span = to.as_millis().saturating_sub(from.as_millis());
        if buckets == 0 || span == 0 {
            return Ok(counts);
        }
        let mut add = |at: u64, count: u64| {
            if count > 0 && (from.as_millis()..to.as_millis()).contains(&at) {
                let place = u128::from(at - from.as_millis()) * buckets as u128 / u128::from(span);
                counts[place as usize] += count;
            }
        };
        for (slot, bucket) in &engine.buckets {
            for (part, count) in bucket.parts.iter().enumerate() {
                let (start, _) = slot.part_range(part);
                add(start, u64::from(*count));
            }
        }
        // What is near is counted where it is in memory, and overdue ones as due now.
        let now = engine.now.wall();
        for lane in engine.lanes.iter() {
            let mut rest = lane.near_count;
            for key in lane.near.keys().rev().take_while(|key| key.ready > now) {
                add(key.ready.as_millis(), 1);
                rest = rest.saturating_sub(1);
            }
            add(now.as_millis(), rest);
        }
        Ok(counts)
    }

    pub(super) async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let leases_ended = self.end_leases(now).await.unwrap_or_else(|error| {
            // What keeps one lease from ending must not hide from the lanes what is due in them.
            tracing::warn!(%error, "ended leases not released; retried at the next sweep");
            0
        });
        if let Err(error) = self.bury_damaged(now).await {
            tracing::warn!(%error, "damaged messages could not be made dead letters; tried again at the next sweep");
        }
        let mut engine = self.engine();
        engine.check_open()?;
        if engine.tick(now) || engine.wants_background() {
            self.background.notify_one();
        }
        let next = lanes
            .iter()
            .filter_map(|lane| {
                let number = engine.lanes.number(lane)?;
                if engine.lanes.get(number)?.paused {
                    return None;
                }
                Some((lane.clone(), engine.next_due(number)?))
            })
            .collect();
        Ok(Sweep {
            next,
            leases_ended,
            next_lease_end: engine.flight.next_end(),
            again_within: engine.again_within(now),
            paused: None,
        })
    }
}

impl Engine {
    /// How soon a bucket must be opened.
    fn again_within(&self, now: Now) -> Option<Duration> {
        let opens = self.buckets.keys().map(|slot| Opened::opens_at(*slot)).min()?;
        Some(opens.since(now.wall()).max(Duration::from_millis(20)))
    }
}
