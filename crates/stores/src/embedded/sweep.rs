//! `sweep`: ends leases, makes dead letters of damaged messages, and returns when each lane is next due.

use std::time::Duration;

use duly_core::{
    Lane, Now,
    store::{StoreError, Sweep},
};

use super::{SharedEngine, engine::Engine};

impl SharedEngine {
    pub(super) async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        // Before anything that waits for the disk: health goes by it.
        self.engine().set_now(now);
        let leases_ended = self.end_leases(now).await.unwrap_or_else(|error| {
            // A lease that cannot be ended must not keep the lanes from learning what is due.
            tracing::warn!(%error, "ended leases not released; retried at the next sweep");
            0
        });
        if let Err(error) = self.dead_letter_damaged(now).await {
            tracing::warn!(%error, "damaged messages could not be made dead letters; tried again at the next sweep");
        }
        let mut engine = self.engine();
        engine.check_open()?;
        engine.forget_unread();
        if engine.tick(now) || engine.wants_background() {
            self.background.notify_one();
        }
        let next = lanes
            .iter()
            .filter_map(|lane| {
                let number = engine.lanes.number(lane)?;
                if engine.lanes.get(number)?.is_paused() {
                    return None;
                }
                Some((lane.clone(), engine.next_due(number)?))
            })
            .collect();
        Ok(Sweep {
            next,
            leases_ended,
            next_lease_end: engine.in_flight.next_end(),
            again_within: engine.again_within(now),
            paused: None,
        })
    }
}

impl Engine {
    /// Forgets parts of backlogs that were set aside of lanes in which nothing waits any more.
    fn forget_unread(&mut self) {
        let lanes = &self.lanes;
        let waits = |number| lanes.get(number).is_some_and(|lane| lane.near_count() > 0);
        self.tables.unread_mut().forget_lanes(waits);
    }

    /// How soon a bucket must be opened.
    fn again_within(&self, now: Now) -> Option<Duration> {
        Some(self.buckets.next_opening()?.since(now.wall()).max(Duration::from_millis(20)))
    }
}
