//! Parked entries of an ordered group: read, and left in Redis until their key gets on.
//!
//! A parked entry is pending and due. So it needs no heartbeat, and if this process dies it is no suspect.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use redis::RedisResult;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    key_queues::{KEY_SLOTS, LoadedEntry, PARKED_MAX, WaitingEntry},
    ordered::Ordered,
};
use crate::{
    EntryId, Priority, clock,
    group::{ClaimedEntry, Lane, Page},
};

/// The limit of parked entries is reported again after this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl Ordered {
    /// Parks entries that are not in memory yet, each behind others of its key.
    pub(super) async fn park(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<(Vec<u8>, ClaimedEntry)>) {
        if entries.is_empty() {
            return;
        }
        self.requeue(lane, entries.iter().map(|(_, entry)| entry)).await;
        for (key, entry) in entries {
            let due = entry.wait.filter(|wait| !wait.is_zero()).map(|wait| clock::instant() + wait);
            let refused = self.enqueue(&key, self.queues.parked(lane.clone(), entry.raw.id, due));
            debug_assert!(refused.is_none(), "a parked entry may always be queued");
        }
    }

    /// Parks the whole queue of a key whose first entry is retried after `wait`: it takes no slot meanwhile.
    pub(super) async fn park_key(&self, key: &[u8], lane: &Arc<Lane>, id: EntryId, wait: Duration) {
        let first = self.queues.parked(lane.clone(), id, Some(clock::instant() + wait));
        self.park_queue(key, Some(first)).await;
    }

    /// Parks the queue of a key, behind `first` if there is one.
    async fn park_queue(&self, key: &[u8], first: Option<WaitingEntry>) {
        let unloaded = self.queues.park_all(key, first);
        for priority in Priority::ALL {
            let of_lane = || unloaded.iter().filter(|(lane, _)| lane.priority == priority);
            if let Some((lane, _)) = of_lane().next() {
                self.requeue(lane, of_lane().map(|(_, loaded)| &loaded.entry)).await;
            }
        }
    }

    /// Makes pending entries due that wait for nothing but their key.
    async fn requeue(&self, lane: &Lane, entries: impl Iterator<Item = &ClaimedEntry>) {
        // A suspect would no longer be one.
        let entries =
            entries.filter_map(|entry| entry.wait.map(|wait| (wait, entry.raw.id.as_str().to_owned())));
        // Those that wait for their retry are due then.
        let (ready, waiting): (Vec<_>, Vec<_>) = entries.partition(|(wait, _)| wait.is_zero());
        let in_flight = &self.processor.in_flight;
        in_flight.remove(lane.priority, waiting.iter().map(|(_, id)| id.as_str()));
        let ids: Vec<String> = ready.into_iter().map(|(_, id)| id).collect();
        if ids.is_empty() {
            return;
        }
        let link = &mut self.processor.link.clone();
        match lane.requeue(link, &lane.consumer, Duration::ZERO, &ids).await {
            Ok(_) => in_flight.remove(lane.priority, ids.iter().map(String::as_str)),
            // They stay in flight, and are loaded as suspects.
            Err(error) => tracing::warn!(topic = lane.topic, entries = ids.len(), %error, "park failed"),
        }
    }

    /// Loads the first entry of a key when it is due, and with it others behind it as far as there are slots.
    pub(super) async fn load(&self, key: &[u8], lane: &Arc<Lane>, due: Option<Instant>) -> RedisResult<()> {
        let wait = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(clock::instant()));
        if !wait.is_zero() {
            // It may have been recovered when later entries were in memory already: they take no slots meanwhile.
            self.park_queue(key, None).await;
            self.pause(wait).await;
        }
        let slot = if self.should_stop() { None } else { self.slot_for_first(key).await };
        let Some(slot) = slot else {
            let parked = self.queues.pop_parked(key, lane, usize::MAX);
            let ids = || parked.iter().map(|item| item.id.as_str());
            self.processor.abandon(lane, ids());
            self.forget(lane, ids());
            return Ok(());
        };
        // What is behind an entry that fails again would be parked again.
        let count = if due.is_some() { 1 } else { KEY_SLOTS };
        let mut slots = vec![slot];
        slots.extend(std::iter::from_fn(|| self.slots.clone().try_acquire_owned().ok()).take(count - 1));
        let parked = self.queues.pop_parked(key, lane, slots.len());
        slots.truncate(parked.len());
        if parked.is_empty() {
            // A recovered entry came before them.
            return Ok(());
        }
        let ids: Vec<String> = parked.iter().map(|item| item.id.as_str().to_owned()).collect();
        self.processor.in_flight.insert(lane.priority, ids.iter().map(String::as_str));
        match lane.load(&mut self.processor.link.clone(), &ids).await {
            Ok(page) => self.queues.push_front(key, self.loaded(lane, page, &ids, slots)),
            Err(error) => {
                self.queues.push_front(key, parked);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A slot for the first entry of a key. If none is free, the entries behind it give up theirs: they wait for it, and if those of other
    /// keys that do not get on hold the rest, none would ever be free.
    async fn slot_for_first(&self, key: &[u8]) -> Option<OwnedSemaphorePermit> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        self.park_queue(key, None).await;
        self.acquire_slot().await
    }

    /// The entries that were loaded, of those with these ids.
    fn loaded(
        &self,
        lane: &Arc<Lane>,
        page: Page,
        ids: &[String],
        mut slots: Vec<OwnedSemaphorePermit>,
    ) -> Vec<WaitingEntry> {
        self.processor.report_lost(lane, &page.trimmed);
        let is_loaded = |id: &&str| page.entries.iter().any(|entry| entry.raw.id.as_str() == *id);
        let missing: Vec<&str> = ids.iter().map(String::as_str).filter(|id| !is_loaded(id)).collect();
        self.processor.in_flight.remove(lane.priority, missing.iter().copied());
        self.queued.remove(lane.priority, missing.into_iter());
        let mut loaded = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let wait = entry.wait.unwrap_or_default();
            loaded.push(match slots.pop().filter(|_| wait.is_zero()) {
                // A suspect is begun by a call of its own.
                Some(slot) => {
                    let is_in_flight = entry.wait.is_some();
                    WaitingEntry::loaded(lane.clone(), LoadedEntry { entry, is_in_flight, slot })
                }
                None => self.queues.parked(lane.clone(), entry.raw.id, Some(clock::instant() + wait)),
            });
        }
        loaded
    }

    /// Waits until a further page may be parked, at most until this consumer stops.
    pub(super) async fn room_to_park(&self) {
        let mut count = self.queues.parked_count();
        let parked = *count.borrow();
        if parked < PARKED_MAX {
            return;
        }
        self.report_limit(parked);
        tokio::select! {
            _ = count.wait_for(|parked| *parked < PARKED_MAX) => {}
            () = self.stopped() => {}
        }
    }

    fn report_limit(&self, parked: usize) {
        let mut next = self.next_parked_report.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::instant();
        if let (true, Some(lane)) = (now >= *next, self.processor.lanes().first()) {
            *next = now + REPORT_INTERVAL;
            let (topic, group) = (&lane.topic, &lane.group);
            tracing::warn!(
                topic,
                group,
                parked,
                "reading paused, too many entries wait for others of their key"
            );
        }
    }
}
