//! From when on there are messages that are not near yet.

use duly_core::Timestamp;

use super::engine::Engine;

impl Engine {
    /// Nothing of the lane is released before this; `None` if nothing of it waits. The hot window and runs may still hold entries of
    /// what has ended: without the count, they would call a claim back for ever.
    pub(super) fn next_due(&self, number: u32) -> Option<Timestamp> {
        let lane = self.lanes.get(number).filter(|lane| lane.pending() > 0)?;
        // What the disk could not read is claimed again when it is to be read again.
        let again = self.tables.unread().due(number, self.now.mono()).map(|again| &again.key);
        let near = lane.first().into_iter().chain(lane.spilling()).chain(again).min();
        near.map(|key| key.ready).into_iter().chain(self.unopened()).min()
    }

    /// Everything that is not near yet is released at this time or later.
    fn unopened(&self) -> Option<Timestamp> {
        self.buckets.unopened().into_iter().chain(self.tables.blocked().next()).min()
    }

    /// A claim leaves messages that are released at this time or later, until what is still on its way to the hot window has
    /// arrived: so a lane's messages come in order.
    pub(super) fn unopened_and_awaited(&self) -> Option<Timestamp> {
        self.buckets.unopened_and_awaited().into_iter().chain(self.tables.blocked().next()).min()
    }
}
