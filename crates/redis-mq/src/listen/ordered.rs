//! Ordered listeners: entries of one key are handled one after the other, in stream order.
//!
//! Redis assigns entries of a group to whichever consumer reads next, so two consumers could have two entries of one
//! key at the same time. In an ordered group one consumer leads and handles many keys at once; the others stand by and
//! take over when it stops.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use redis::RedisResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    OrderingKey,
    in_flight::InFlight,
    processor::{Disposition, Isolation, Processor},
    reader::READ_BACKOFF,
    reclaimer,
    recovery::GroupPosition,
};
use crate::{
    clock,
    group::{ClaimedEntry, Lane},
};

/// Entries queued behind others of their key, per concurrent handler call.
const SLOTS_PER_CALL: usize = 16;

struct QueuedEntry {
    lane: Arc<Lane>,
    entry: ClaimedEntry,
    /// Whether it was just read, so that this is its first attempt.
    is_new: bool,
    _slot: OwnedSemaphorePermit,
}

impl QueuedEntry {
    /// Whether it comes after `other` in the same stream.
    fn comes_after(&self, other: &Self) -> bool {
        self.lane.priority == other.lane.priority && self.stream_id() > other.stream_id()
    }

    fn stream_id(&self) -> Option<(u64, u64)> {
        let (millis, serial) = self.entry.raw.id.as_str().split_once('-')?;
        Some((millis.parse().ok()?, serial.parse().ok()?))
    }
}

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

/// Queues of entries by key.
pub(super) struct Ordered {
    key: OrderingKey,
    /// One permit per entry in the queues.
    pub(super) slots: Arc<Semaphore>,
    slots_max: usize,
    queues: Mutex<HashMap<Vec<u8>, VecDeque<QueuedEntry>>>,
    /// All entries that are queued, being handled, or waiting here for their retry.
    pub(super) queued: InFlight,
    /// Whether this consumer leads the group.
    pub(super) is_leader: AtomicBool,
    /// The position of the group in each stream, by priority.
    pub(super) positions: Mutex<[GroupPosition; 3]>,
    /// When to reclaim next from consumers that do not lead.
    pub(super) next_reclaim: Mutex<Instant>,
    pub(super) processor: Arc<Processor>,
    stop: watch::Receiver<bool>,
}

impl Ordered {
    pub(super) fn new(key: OrderingKey, processor: Arc<Processor>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let slots_max = processor.settings.concurrency * SLOTS_PER_CALL;
        Arc::new(Self {
            key,
            slots: Arc::new(Semaphore::new(slots_max)),
            slots_max,
            queues: Mutex::default(),
            queued: InFlight::default(),
            is_leader: AtomicBool::new(false),
            positions: Mutex::default(),
            next_reclaim: Mutex::new(clock::instant()),
            processor,
            stop,
        })
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Vec<u8>, VecDeque<QueuedEntry>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Duration {
        self.processor.settings.abandoned_after().max(Duration::from_millis(500))
    }

    /// Takes the leadership if it is free. A new leader knows no position of any stream.
    pub(super) async fn ensure_leader(&self) -> RedisResult<Leadership> {
        if self.is_leader.load(Ordering::Acquire) {
            return Ok(Leadership::Leader);
        }
        let lanes = self.processor.lanes();
        let Some(first) = lanes.first() else { return Ok(Leadership::Standby) };
        if !first.acquire_leadership(&mut self.processor.link.clone(), self.lease()).await? {
            return Ok(Leadership::Standby);
        }
        self.reset_positions();
        self.is_leader.store(true, Ordering::Release);
        Ok(Leadership::Elected)
    }

    /// Renews the leadership until the listener has ended.
    pub(super) async fn renew_leadership(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut valid_until = clock::instant();
        while !*ended.borrow() {
            tokio::select! {
                () = clock::sleep(self.lease() / 5) => {}
                _ = ended.wait_for(|ended| *ended) => return,
            }
            let lanes = self.processor.lanes();
            let (true, Some(lane)) = (self.is_leader.load(Ordering::Acquire), lanes.first()) else {
                continue;
            };
            let asked = clock::instant();
            match lane.acquire_leadership(&mut self.processor.link.clone(), self.lease()).await {
                Ok(true) => valid_until = asked + self.lease(),
                Err(_) if clock::instant() < valid_until => {}
                Ok(false) | Err(_) => self.step_down(lane),
            }
        }
    }

    pub(super) fn step_down(&self, lane: &Lane) {
        if self.is_leader.swap(false, Ordering::AcqRel) {
            tracing::warn!(topic = lane.topic, group = lane.group, "ordered lease lost to another consumer");
        }
    }

    /// Queues entries, each behind earlier ones of its key.
    pub(super) async fn push(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<ClaimedEntry>, is_new: bool) {
        let ids = || entries.iter().map(|entry| entry.raw.id.as_str().to_owned()).collect::<Vec<_>>();
        self.queued.insert(lane.priority, ids().iter().map(String::as_str));
        for (at, entry) in entries.iter().enumerate() {
            let slots = self.slots.clone().acquire_owned().await;
            let (Ok(_slot), false) = (slots, self.should_stop()) else {
                // They stay pending, and the next leader begins with them.
                let rest = ids().split_off(at);
                if is_new {
                    self.processor.release(lane, &rest).await;
                } else {
                    self.processor.abandon(lane, rest.iter().map(String::as_str));
                }
                return self.queued.remove(lane.priority, rest.iter().map(String::as_str));
            };
            let item = QueuedEntry { lane: lane.clone(), entry: entry.clone(), is_new, _slot };
            self.enqueue(self.key_of(&item), item);
        }
    }

    fn key_of(&self, QueuedEntry { lane, entry, .. }: &QueuedEntry) -> Vec<u8> {
        // An entry without a key has its id as key: nothing else waits for it.
        let key = catch_unwind(AssertUnwindSafe(|| (self.key)(&entry.raw))).unwrap_or_else(|_| {
            tracing::error!(topic = lane.topic, id = %entry.raw.id, "key function panicked, entry has no key");
            None
        });
        key.unwrap_or_else(|| entry.raw.id.as_str().as_bytes().to_vec())
    }

    fn enqueue(self: &Arc<Self>, key: Vec<u8>, item: QueuedEntry) {
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(&key) {
            // A recovered entry may come before some that are queued.
            let at = queue.iter().position(|other| other.comes_after(&item)).unwrap_or(queue.len());
            queue.insert(at, item);
            return;
        }
        queues.insert(key.clone(), VecDeque::new());
        tokio::spawn(self.clone().drain_key(key, item));
    }

    /// Handles the entries of one key one after the other, until none is queued.
    async fn drain_key(self: Arc<Self>, key: Vec<u8>, first: QueuedEntry) {
        let mut next = Some(first);
        while let Some(item) = next {
            let (priority, id) = (item.lane.priority, item.entry.raw.id.clone());
            self.handle_until_settled(item).await;
            self.queued.remove(priority, std::iter::once(id.as_str()));
            let mut queues = self.queues();
            next = queues.get_mut(&key).and_then(VecDeque::pop_front);
            if next.is_none() {
                queues.remove(&key);
            }
        }
    }

    pub(super) fn should_stop(&self) -> bool {
        *self.stop.borrow() || !self.is_leader.load(Ordering::Acquire)
    }

    async fn pause(&self, wait: Duration) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = clock::sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Handles an entry until it is settled or this consumer stops: others of its key wait meanwhile.
    async fn handle_until_settled(&self, item: QueuedEntry) {
        let QueuedEntry { lane, mut entry, mut is_new, .. } = item;
        let processor = &self.processor;
        let id = entry.raw.id.clone();
        let mut backoff = READ_BACKOFF.0;
        loop {
            if let Some(wait) = entry.wait.filter(|wait| !wait.is_zero()) {
                self.pause(wait).await;
            }
            if self.should_stop() && entry.wait.is_none() {
                // A released entry would no longer be a suspect.
                return processor.abandon(&lane, std::iter::once(id.as_str()));
            }
            if self.should_stop() {
                return processor.release(&lane, &[id.as_str().to_owned()]).await;
            }
            processor.in_flight.insert(lane.priority, std::iter::once(id.as_str()));
            let handled = AssertUnwindSafe(self.handle(&lane, entry.clone(), is_new)).catch_unwind().await;
            // Not the handler's panic, so that the outcome is unknown.
            match handled.unwrap_or(Disposition::Unsettled) {
                Disposition::Settled => return,
                Disposition::RetryAfter(wait) => {
                    entry.failures += 1;
                    entry.raw.attempt += 1;
                    entry.wait = Some(wait.max(Duration::from_millis(1)));
                    backoff = READ_BACKOFF.0;
                }
                Disposition::Unsettled => {
                    // A suspect stays a suspect.
                    entry.wait = entry.wait.map(|_| Duration::ZERO);
                    self.pause(backoff).await;
                    backoff = (backoff * 2).min(READ_BACKOFF.1);
                }
            }
            is_new = false;
        }
    }

    async fn handle(&self, lane: &Arc<Lane>, entry: ClaimedEntry, is_new: bool) -> Disposition {
        let processor = &self.processor;
        if entry.wait.is_none() {
            return reclaimer::handle_suspect(processor, lane, entry).await;
        }
        let id = entry.raw.id.clone();
        let Ok(_permit) = processor.permits.acquire().await else { return Disposition::Settled };
        let attempt = processor.new_attempt(Isolation::Shared);
        if !is_new {
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

    /// Waits until no entry is queued.
    pub(super) async fn drained(&self) {
        let all = u32::try_from(self.slots_max).unwrap_or(u32::MAX);
        let _ = self.slots.acquire_many(all).await;
    }

    /// Lets the next one processor.
    pub(super) async fn release_leadership(&self) {
        if let (true, Some(lane)) =
            (self.is_leader.swap(false, Ordering::AcqRel), self.processor.lanes().first())
        {
            let _ = lane.release_leadership(&mut self.processor.link.clone()).await;
        }
    }
}
