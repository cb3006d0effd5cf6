//! Leadership of an ordered group: a lease in Redis.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use redis::RedisResult;
use tokio::{sync::watch, time::timeout};

use super::ordered::Ordered;
use crate::{
    clock,
    group::Lane,
    lock::lease::{Lease, Moment},
};

/// Why a leader steps down.
pub(super) const TAKEN: &str = "another consumer leads";
const ENDED: &str = "it was not renewed in time";

/// Whether this consumer leads the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leadership {
    /// It leads already.
    Leader,
    /// It leads from now on.
    Elected,
    /// Another consumer leads.
    Standby,
}

impl Ordered {
    fn lease_span(&self) -> Duration {
        self.processor.settings.abandoned_after().max(Duration::from_millis(500))
    }

    /// How much longer this consumer certainly leads.
    fn lease_left(&self) -> Duration {
        let lease = *self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.map_or(Duration::ZERO, |lease| lease.left_now())
    }

    fn is_leader(&self) -> bool {
        *self.leads.borrow() && !self.lease_left().is_zero()
    }

    /// Whether no further entry may be begun here.
    pub(super) fn should_stop(&self) -> bool {
        *self.stop.borrow() || !self.is_leader()
    }

    /// Returns when the listener stops or this consumer no longer leads.
    pub(super) async fn stopped(&self) {
        let (mut stop, mut leads) = (self.stop.clone(), self.leads.subscribe());
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }

    /// Takes the leadership if it is free. A new leader knows no position of any stream.
    pub(super) async fn ensure_leader(&self) -> RedisResult<Leadership> {
        if self.is_leader() {
            return Ok(Leadership::Leader);
        }
        let lanes = self.processor.lanes();
        let Some(first) = lanes.first() else { return Ok(Leadership::Standby) };
        // Its lease may have ended just now.
        self.step_down(first, ENDED);
        // An answer that comes when the lease has ended is none.
        if !self.acquire_lease(first).await? || self.lease_left().is_zero() {
            return Ok(Leadership::Standby);
        }
        self.reset_positions();
        self.leads.send_replace(true);
        Ok(Leadership::Elected)
    }

    /// Takes or renews the lease, and notes how long it holds.
    async fn acquire_lease(&self, lane: &Lane) -> RedisResult<bool> {
        let (requested, span) = (Moment::now(), self.lease_span());
        let is_ours = lane.acquire_leadership(&mut self.processor.link.clone(), span).await?;
        if is_ours {
            let lease = Lease::new(requested, span);
            *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
        }
        Ok(is_ours)
    }

    /// Renews the leadership until the listener has ended, and ends it when the lease ends: also when Redis does not answer.
    pub(super) async fn renew_leadership(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        while !*ended.borrow() {
            let interval = self.lease_span() / 5;
            let wait = if *self.leads.borrow() { interval.min(self.lease_left()) } else { interval };
            tokio::select! {
                () = clock::sleep(wait) => {}
                _ = ended.wait_for(|ended| *ended) => return,
            }
            let lanes = self.processor.lanes();
            let (true, Some(lane)) = (*self.leads.borrow(), lanes.first()) else {
                continue;
            };
            let renewed = match self.lease_left() {
                Duration::ZERO => None,
                left => timeout(left, self.acquire_lease(lane)).await.ok(),
            };
            match renewed {
                Some(Ok(false)) => self.step_down(lane, TAKEN),
                // After an error Redis is asked again as long as the lease holds.
                Some(Ok(true) | Err(_)) if !self.lease_left().is_zero() => {}
                _ => self.step_down(lane, ENDED),
            }
        }
    }

    pub(super) fn step_down(&self, lane: &Lane, reason: &'static str) {
        if self.leads.send_replace(false) {
            tracing::warn!(topic = lane.topic, group = lane.group, reason, "ordered lease lost");
        }
    }

    /// Lets another consumer lead.
    pub(super) async fn release_leadership(&self) {
        if let (true, Some(lane)) = (self.leads.send_replace(false), self.processor.lanes().first()) {
            let _ = lane.release_leadership(&mut self.processor.link.clone()).await;
        }
    }
}
