//! Where the store takes messages to the target by itself: before each claim, and instead of most.

use std::sync::Arc;

use duly_core::{
    Clock, InStoreDelivered, InStoreDelivery, Lane, Now, Remaining,
    store::{Claim, Claimed, StoreError, StoreErrorKind},
};

use super::{Driver, Worker, driver::Served};
use crate::{events::EventBus, tally::LaneTally};

/// What is to be done before a claim.
pub(super) struct Moving {
    mover: Arc<dyn InStoreDelivery>,
    movable: usize,
    lane: Lane,
    tally: Arc<LaneTally>,
    events: Arc<EventBus>,
    clock: Arc<dyn Clock>,
}

/// What moving left to do.
pub(super) enum Before {
    /// This claim.
    Claim(Claim),
    /// Nothing: this is what the claim would have said.
    Done(Claimed),
}

impl Driver {
    pub(super) fn moving(&self, served: &Served, movable: usize) -> Option<Moving> {
        let Worker::Sink(_, Some(mover)) = &served.worker else { return None };
        let (mover, lane, tally) = (mover.clone(), served.lane.clone(), served.tally.clone());
        let (events, clock) = (self.parts.events.clone(), self.parts.clock.clone());
        (movable > 0).then_some(Moving { mover, movable, lane, tally, events, clock })
    }
}

impl Moving {
    /// Moves what is due, counts and tells it. Gives how many, and the claim for what is left.
    pub(super) async fn before(self, mut claim: Claim) -> (usize, Result<Before, StoreError>) {
        let moved = match self.mover.move_due(self.clock.now(), self.movable).await {
            Ok(moved) => moved,
            // Nothing was moved, and claims need no room: the sink hears why not from its target, and waits for it.
            Err(error) if error.kind == StoreErrorKind::Full => return (0, Ok(Before::Claim(claim))),
            Err(error) => return (0, Err(error)),
        };
        let InStoreDelivered { messages, next, left } = moved;
        let (count, now): (usize, Now) = (messages.len(), self.clock.now());
        for message in messages {
            let late_us = now.wall_micros().saturating_sub(message.ready.as_millis() * 1000);
            self.events.moved((&self.lane, &self.tally), message, late_us);
        }
        claim.limit = claim.limit.min(claim.limit.max(self.movable).saturating_sub(count));
        let before = match left {
            Remaining::ToClaim if claim.limit > 0 => Before::Claim(claim),
            _ => Before::Done(Claimed { messages: Vec::new(), next }),
        };
        (count, Ok(before))
    }
}
