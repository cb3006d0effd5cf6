//! `get`, `lanes` and `forecast`: reads that change nothing.

use duly_core::{
    MessageId, Now, Record, Timestamp,
    store::{LaneStatus, StoreError},
};

use super::{SharedEngine, lanes::LaneState};

impl SharedEngine {
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
        let is_told = |(_, state): &(u32, &LaneState)| {
            state.is_paused() || state.pending() + state.in_flight() + state.dead() > 0
        };
        Ok(engine
            .lanes
            .numbered()
            .filter(is_told)
            .map(|(number, state)| {
                let mut status = LaneStatus::empty(state.lane().clone());
                (status.paused, status.pending, status.ready) =
                    (state.is_paused(), state.pending(), state.ready(now.wall()));
                (status.in_flight, status.dead) = (state.in_flight(), state.dead());
                // What the disk cannot read waits, too.
                let first = state.first().into_iter().chain(engine.tables.unread().first(number)).min();
                status.oldest_ready = first.map(|key| key.ready).filter(|ready| *ready <= now.wall());
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
        // A span of the store's own counts once: in the first part that it overlaps. Otherwise a narrow forecast would miss what is due.
        let mut add = |start: u64, width: u64, count: u64| {
            if count > 0 && start < to.as_millis() && start.saturating_add(width) > from.as_millis() {
                let into = start.saturating_sub(from.as_millis());
                let position = u128::from(into) * buckets as u128 / u128::from(span);
                counts[position as usize] += count;
            }
        };
        for (slot, bucket) in engine.buckets.iter() {
            for (part, count) in bucket.parts().iter().enumerate() {
                let (start, width) = slot.part_range(part);
                add(start, width, u64::from(*count));
            }
        }
        // Near messages in the hot window count at their release time, all others and overdue ones as due between now, which may
        // be a little old, and the end of what is near.
        let now = engine.now.wall();
        let near_width = engine.buckets.opened().near_end().saturating_sub(now.as_millis()).max(1);
        for lane in engine.lanes.iter() {
            let mut rest = lane.near_count();
            for key in lane.hot().keys().rev().take_while(|key| key.ready > now) {
                add(key.ready.as_millis(), 1, 1);
                rest = rest.saturating_sub(1);
            }
            add(now.as_millis(), near_width, rest);
        }
        Ok(counts)
    }
}
