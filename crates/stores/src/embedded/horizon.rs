//! What is not near yet, and from when on.

use duly_core::Timestamp;

use super::{
    engine::Engine,
    wheel::{LEVELS, Slot},
};

impl Engine {
    /// Nothing of the lane is due before this.
    pub(super) fn next_due(&self, lane: u32) -> Option<Timestamp> {
        let near = self.lanes.get(lane).and_then(|lane| lane.first().into_iter().chain(&lane.limbo).min());
        near.map(|key| key.ready).into_iter().chain(self.unopened()).min()
    }

    /// Everything that is not near yet is due at this time or later.
    pub(super) fn unopened(&self) -> Option<Timestamp> {
        [self.next_bucket(), self.blocked.next(), self.arriving, self.splitting].into_iter().flatten().min()
    }

    /// What is due at this time or later waits for what is still on its way, so that a lane's messages come in order. A
    /// large bucket is not waited for: it would hold up every lane.
    pub(super) fn unopened_soon(&self) -> Option<Timestamp> {
        [self.next_bucket(), self.blocked.next(), self.arriving_soon, self.splitting_soon]
            .into_iter()
            .flatten()
            .min()
    }

    /// The start of the first bucket with anything in it.
    fn next_bucket(&self) -> Option<Timestamp> {
        (0..LEVELS as u8)
            .filter_map(|level| {
                let from = Slot { level, number: 0 };
                let to = Slot { level: level + 1, number: 0 };
                self.buckets.range(from..to).next().map(|(slot, _)| slot.start())
            })
            .min()
    }
}
