//! In-store delivery before each claim.

use std::sync::Arc;

use duly_core::{
    Clock, InStoreDelivered, InStoreDelivery, Lane, Now, Remaining,
    store::{Claim, Claimed, StoreError, StoreErrorKind},
};

use super::{Driver, Worker, driver::ServedLane};
use crate::{counters::LaneCounters, events::EventBus};

/// An in-store delivery that precedes a claim.
pub(super) struct InStoreClaim {
    in_store: Arc<dyn InStoreDelivery>,
    in_store_max: usize,
    lane: Lane,
    counters: Arc<LaneCounters>,
    events: Arc<EventBus>,
    clock: Arc<dyn Clock>,
}

/// The rest of a claim after the in-store delivery.
pub(super) enum AfterDelivery {
    /// This claim.
    Claim(Claim),
    /// Nothing to claim: this is the result of the claim.
    Done(Claimed),
}

impl Driver {
    pub(super) fn in_store_claim(&self, served: &ServedLane, in_store_max: usize) -> Option<InStoreClaim> {
        let Worker::Sink(_, Some(in_store)) = &served.worker else { return None };
        let (in_store, lane, counters) = (in_store.clone(), served.lane.clone(), served.counters.clone());
        let (events, clock) = (self.parts.events.clone(), self.parts.clock.clone());
        (in_store_max > 0).then_some(InStoreClaim { in_store, in_store_max, lane, counters, events, clock })
    }
}

impl InStoreClaim {
    /// Delivers due messages in the store, counts and publishes them. Returns how many, and the claim for the rest.
    pub(super) async fn deliver_then(self, mut claim: Claim) -> (usize, Result<AfterDelivery, StoreError>) {
        let delivered_in_store = match self.in_store.deliver_due(self.clock.now(), self.in_store_max).await {
            Ok(delivered_in_store) => delivered_in_store,
            // Nothing was delivered, and a claim needs no space: the sink gets the error from its target, and waits.
            Err(error) if error.kind == StoreErrorKind::Full => return (0, Ok(AfterDelivery::Claim(claim))),
            Err(error) => return (0, Err(error)),
        };
        let InStoreDelivered { messages, next, remaining } = delivered_in_store;
        let (count, now): (usize, Now) = (messages.len(), self.clock.now());
        for message in messages {
            let late_us = now.wall_micros().saturating_sub(message.ready.as_millis() * 1000);
            self.events.delivered_in_store((&self.lane, &self.counters), message, late_us);
        }
        claim.limit = claim.limit.min(claim.limit.max(self.in_store_max).saturating_sub(count));
        let rest = match remaining {
            Remaining::ToClaim if claim.limit > 0 => AfterDelivery::Claim(claim),
            _ => AfterDelivery::Done(Claimed { messages: Vec::new(), next }),
        };
        (count, Ok(rest))
    }
}
