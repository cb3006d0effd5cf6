//! Leadership of an ordered group: a lease in Redis.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::RedisResult;
use tokio::sync::watch;

use super::ordered::Ordered;
use crate::{clock, group::Lane};

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
    fn lease(&self) -> Duration {
        self.processor.settings.abandoned_after().max(Duration::from_millis(500))
    }

    fn is_leader(&self) -> bool {
        *self.leads.borrow()
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
        if !self.acquire_lease(first).await? {
            return Ok(Leadership::Standby);
        }
        self.reset_positions();
        self.leads.send_replace(true);
        Ok(Leadership::Elected)
    }

    /// Takes or renews the lease, and notes how long it holds.
    async fn acquire_lease(&self, lane: &Lane) -> RedisResult<bool> {
        let asked = clock::instant();
        let is_ours = lane.acquire_leadership(&mut self.processor.link.clone(), self.lease()).await?;
        if is_ours {
            *self.lease_end() = asked + self.lease();
        }
        Ok(is_ours)
    }

    fn lease_end(&self) -> MutexGuard<'_, Instant> {
        self.lease_end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the leadership until the listener has ended.
    pub(super) async fn renew_leadership(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        while !*ended.borrow() {
            tokio::select! {
                () = clock::sleep(self.lease() / 5) => {}
                _ = ended.wait_for(|ended| *ended) => return,
            }
            let lanes = self.processor.lanes();
            let (true, Some(lane)) = (self.is_leader(), lanes.first()) else {
                continue;
            };
            match self.acquire_lease(lane).await {
                Ok(true) => {}
                Err(_) if clock::instant() < *self.lease_end() => {}
                Ok(false) | Err(_) => self.step_down(lane),
            }
        }
    }

    pub(super) fn step_down(&self, lane: &Lane) {
        if self.leads.send_replace(false) {
            tracing::warn!(topic = lane.topic, group = lane.group, "ordered lease lost to another consumer");
        }
    }

    /// Lets another consumer lead.
    pub(super) async fn release_leadership(&self) {
        if let (true, Some(lane)) = (self.leads.send_replace(false), self.processor.lanes().first()) {
            let _ = lane.release_leadership(&mut self.processor.link.clone()).await;
        }
    }
}
