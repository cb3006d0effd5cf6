//! Ordered listeners: entries of one key are handled one after the other, in stream order.
//!
//! Redis assigns entries of a group to whichever consumer reads next, so two consumers could have two entries of one
//! key at the same time. In an ordered group one consumer leads and handles many keys at once; the others stand by and
//! take over when it stops.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    OrderingKey,
    in_flight::InFlight,
    key_queues::{Added, KEY_SLOTS, KeyQueues, LoadedEntry, NextEntry, WaitingEntry},
    processor::{Disposition, Isolation, Processor},
    reader::READ_BACKOFF,
    reclaimer,
    recovery::GroupPosition,
};
use crate::{
    clock,
    group::{ClaimedEntry, Lane},
    lock::lease::Lease,
};

/// Queues of entries by key.
pub(super) struct Ordered {
    key: OrderingKey,
    /// One permit per entry in memory.
    pub(super) slots: Arc<Semaphore>,
    slots_max: usize,
    pub(super) queues: KeyQueues,
    /// All entries that are queued, parked, being handled, or waiting here for their retry.
    pub(super) queued: InFlight,
    /// Whether this consumer leads the group.
    pub(super) leads: watch::Sender<bool>,
    /// Its lease, as far as Redis has answered.
    pub(super) lease: Mutex<Option<Lease>>,
    /// The position of the group in each stream, by priority.
    pub(super) positions: Mutex<[GroupPosition; 3]>,
    /// When to reclaim next from consumers that do not lead.
    pub(super) next_reclaim: Mutex<Instant>,
    /// When to report again that too many entries are parked.
    pub(super) next_parked_report: Mutex<Instant>,
    pub(super) processor: Arc<Processor>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Ordered {
    pub(super) fn new(key: OrderingKey, processor: Arc<Processor>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let slots_max = processor.settings.concurrency * KEY_SLOTS;
        Arc::new(Self {
            key,
            slots: Arc::new(Semaphore::new(slots_max)),
            slots_max,
            queues: KeyQueues::default(),
            queued: InFlight::default(),
            leads: watch::Sender::new(false),
            lease: Mutex::default(),
            positions: Mutex::default(),
            next_reclaim: Mutex::new(clock::instant()),
            next_parked_report: Mutex::new(clock::instant()),
            processor,
            stop,
        })
    }

    /// Queues entries, each behind earlier ones of its key.
    pub(super) async fn push(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<ClaimedEntry>, is_new: bool) {
        let id_of = |entry: &ClaimedEntry| entry.raw.id.as_str().to_owned();
        let ids: Vec<String> = entries.iter().map(id_of).collect();
        self.queued.insert(lane.priority, ids.iter().map(String::as_str));
        let (mut parked, mut parked_keys) = (Vec::new(), HashSet::new());
        for (at, entry) in entries.into_iter().enumerate() {
            let key = self.key_of(lane, &entry);
            let waits = entry.wait.is_some_and(|wait| !wait.is_zero());
            if waits || parked_keys.contains(&key) || self.queues.must_park(&key) {
                parked_keys.insert(key.clone());
                parked.push((key, entry));
                continue;
            }
            if self.slots.available_permits() == 0 {
                // Their keys may be free before a slot is.
                self.park(lane, std::mem::take(&mut parked)).await;
                parked_keys.clear();
            }
            let Some(slot) = self.acquire_slot().await else {
                self.park(lane, parked).await;
                return self.release_unqueued(lane, &ids[at..], is_new).await;
            };
            let loaded = LoadedEntry { entry, is_in_flight: is_new, slot };
            if let Some(entry) = self.enqueue(&key, WaitingEntry::loaded(lane.clone(), loaded)) {
                parked_keys.insert(key.clone());
                parked.push((key, entry));
            }
        }
        self.park(lane, parked).await;
    }

    /// Leaves entries pending that were read too late: the next leader begins with them.
    async fn release_unqueued(&self, lane: &Lane, ids: &[String], is_new: bool) {
        if is_new {
            self.processor.release(lane, ids).await;
        } else {
            self.processor.abandon(lane, ids.iter().map(String::as_str));
        }
        self.forget(lane, ids.iter().map(String::as_str));
    }

    /// Removes entries that are not settled from the queued ones, so that they are found again.
    pub(super) fn forget<'a>(&self, lane: &Lane, ids: impl Iterator<Item = &'a str>) {
        self.queued.remove(lane.priority, ids);
        // After that, or a search that began before would be the last one.
        self.processor.has_unsettled.store(true, Ordering::Release);
    }

    fn key_of(&self, lane: &Lane, entry: &ClaimedEntry) -> Vec<u8> {
        // An entry without a key has its id as key: nothing else waits for it.
        let key = catch_unwind(AssertUnwindSafe(|| (self.key)(&entry.raw))).unwrap_or_else(|_| {
            tracing::error!(topic = lane.topic, id = %entry.raw.id, "key function panicked, entry has no key");
            None
        });
        key.unwrap_or_else(|| entry.raw.id.as_str().as_bytes().to_vec())
    }

    /// Queues an entry. Returns it if it must be parked.
    pub(super) fn enqueue(self: &Arc<Self>, key: &[u8], item: WaitingEntry) -> Option<ClaimedEntry> {
        match self.queues.add(key, item) {
            Added::First => drop(tokio::spawn(self.clone().drain_key(key.to_vec()))),
            Added::Queued => {}
            Added::Refused(entry) => return Some(entry),
        }
        None
    }

    /// Handles the entries of one key one after the other, until none is queued.
    async fn drain_key(self: Arc<Self>, key: Vec<u8>) {
        let mut backoff = READ_BACKOFF.0;
        while let Some(next) = self.queues.next(&key) {
            match next {
                NextEntry::Loaded(lane, loaded) => self.handle_first(&key, &lane, loaded).await,
                NextEntry::Parked(lane, due) => {
                    if let Err(error) = self.load(&key, &lane, due).await {
                        tracing::warn!(topic = lane.topic, %error, "parked entries not loaded yet");
                        self.pause(backoff).await;
                        backoff = (backoff * 2).min(READ_BACKOFF.1);
                        continue;
                    }
                }
            }
            backoff = READ_BACKOFF.0;
        }
    }

    /// Handles the first entry of a key. If it is retried, the key is parked until then.
    async fn handle_first(&self, key: &[u8], lane: &Arc<Lane>, loaded: LoadedEntry) {
        let LoadedEntry { entry, is_in_flight, slot } = loaded;
        let id = entry.raw.id.clone();
        match self.handle_until_recorded(lane, entry, is_in_flight).await {
            Disposition::Settled => {
                self.queued.remove(lane.priority, std::iter::once(id.as_str()));
            }
            Disposition::RetryAfter(wait) => self.park_key(key, lane, id, wait).await,
            Disposition::Unsettled => self.forget(lane, std::iter::once(id.as_str())),
        }
        // Until the end, so that a listener that stops waits for what is recorded here.
        drop(slot);
    }

    /// Handles an entry until Redis has recorded the outcome. `Unsettled`: this consumer stops.
    async fn handle_until_recorded(
        &self,
        lane: &Arc<Lane>,
        mut entry: ClaimedEntry,
        mut is_in_flight: bool,
    ) -> Disposition {
        let processor = &self.processor;
        let id = entry.raw.id.clone();
        let mut backoff = READ_BACKOFF.0;
        loop {
            if self.should_stop() {
                // A released entry would no longer be a suspect.
                match entry.wait {
                    None => processor.abandon(lane, std::iter::once(id.as_str())),
                    Some(_) => processor.release(lane, &[id.as_str().to_owned()]).await,
                }
                return Disposition::Unsettled;
            }
            processor.in_flight.insert(lane.priority, std::iter::once(id.as_str()));
            let handled =
                AssertUnwindSafe(self.handle(lane, entry.clone(), is_in_flight)).catch_unwind().await;
            // Not the handler's panic, so that the outcome is unknown.
            match handled.unwrap_or(Disposition::Unsettled) {
                Disposition::Unsettled => {
                    // A suspect stays a suspect.
                    entry.wait = entry.wait.map(|_| Duration::ZERO);
                    self.pause(backoff).await;
                    backoff = (backoff * 2).min(READ_BACKOFF.1);
                }
                recorded => return recorded,
            }
            is_in_flight = false;
        }
    }

    /// Waits, at most until this consumer stops.
    pub(super) async fn pause(&self, wait: Duration) {
        tokio::select! {
            () = clock::sleep(wait) => {}
            () = self.stopped() => {}
        }
    }

    async fn handle(&self, lane: &Arc<Lane>, entry: ClaimedEntry, is_in_flight: bool) -> Disposition {
        let processor = &self.processor;
        if entry.wait.is_none() {
            return reclaimer::handle_suspect(processor, lane, entry).await;
        }
        let id = entry.raw.id.clone();
        let Ok(_permit) = processor.permits.acquire().await else { return Disposition::Settled };
        let attempt = processor.new_attempt(Isolation::Shared);
        if !is_in_flight {
            match lane.begin_attempt(&mut processor.link.clone(), id.as_str(), false, &attempt.id).await {
                Ok(true) => {}
                Ok(false) => {
                    processor.in_flight.remove(lane.priority, std::iter::once(id.as_str()));
                    return Disposition::Settled;
                }
                Err(error) => {
                    tracing::warn!(topic = lane.topic, %id, %error, "attempt not recorded yet");
                    return Disposition::Unsettled;
                }
            }
        }
        processor.run(lane, vec![entry], &attempt).await
    }

    /// A slot, or `None` if this consumer stops.
    pub(super) async fn acquire_slot(&self) -> Option<OwnedSemaphorePermit> {
        let slot = self.slots.clone().acquire_owned().await.ok()?;
        (!self.should_stop()).then_some(slot)
    }

    /// Waits until no entry is in memory.
    pub(super) async fn drained(&self) {
        let all = u32::try_from(self.slots_max).unwrap_or(u32::MAX);
        let _ = self.slots.acquire_many(all).await;
    }
}
