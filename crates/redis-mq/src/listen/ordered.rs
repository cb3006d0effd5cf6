//! Order: entries of one key are handled one after the other, as they stand in the stream.
//!
//! Redis hands the entries of a group to whoever reads next, so two consumers could have two entries of one key at the same
//! time. In a group that keeps order one consumer works, many keys at once; the others stand by and take its place when it is gone.
//! What is pending and in nobody's hand is found by `recovery`.

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
    KeyOf,
    hand::Hand,
    reading::BACKOFF,
    reclaiming,
    recovery::GroupPosition,
    work::{Left, Manner, Work},
};
use crate::{
    clock,
    group::{Lane, Taken},
};

/// How many entries are in hand for each that is handled, waiting for others of their key.
const HELD_PER_CALL: usize = 16;

struct Item {
    lane: Arc<Lane>,
    taken: Taken,
    /// Whether it was just read.
    is_new: bool,
    _hold: OwnedSemaphorePermit,
}

impl Item {
    /// Whether it stands behind that one in the same stream.
    fn is_behind(&self, other: &Self) -> bool {
        self.lane.priority == other.lane.priority && self.place() > other.place()
    }

    fn place(&self) -> Option<(u64, u64)> {
        let (millis, serial) = self.taken.raw.id.as_str().split_once('-')?;
        Some((millis.parse().ok()?, serial.parse().ok()?))
    }
}

/// Whether it is this consumer that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// It is.
    Leads,
    /// From now on.
    TookOver,
    /// It is another.
    StandsBy,
}

/// What waits for others of its key.
pub(super) struct Ordered {
    key: KeyOf,
    /// Room for what is in hand.
    pub(super) hold: Arc<Semaphore>,
    hold_max: usize,
    queues: Mutex<HashMap<Vec<u8>, VecDeque<Item>>>,
    /// All that is in the queues, or handled, or waits here for its next try.
    pub(super) held: Hand,
    /// Whether it is this consumer that works.
    pub(super) leads: AtomicBool,
    /// Where the group stands in each stream, as far as this consumer knows, by priority.
    pub(super) places: Mutex<[GroupPosition; 3]>,
    /// When to look next for what others left.
    pub(super) sweep: Mutex<Instant>,
    pub(super) work: Arc<Work>,
    stop: watch::Receiver<bool>,
}

impl Ordered {
    pub(super) fn new(key: KeyOf, work: Arc<Work>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let hold_max = work.settings.concurrency * HELD_PER_CALL;
        Arc::new(Self {
            key,
            hold: Arc::new(Semaphore::new(hold_max)),
            hold_max,
            queues: Mutex::default(),
            held: Hand::default(),
            leads: AtomicBool::new(false),
            places: Mutex::default(),
            sweep: Mutex::new(clock::instant()),
            work,
            stop,
        })
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Vec<u8>, VecDeque<Item>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Duration {
        self.work.settings.abandoned_after().max(Duration::from_millis(500))
    }

    /// Whether it is this consumer's turn. If it has just become so, nothing is known of any stream.
    pub(super) async fn lead(&self) -> RedisResult<Lead> {
        if self.leads.load(Ordering::Acquire) {
            return Ok(Lead::Leads);
        }
        let lanes = self.work.lanes();
        let Some(first) = lanes.first() else { return Ok(Lead::StandsBy) };
        if !first.lead(&mut self.work.link.clone(), self.lease()).await? {
            return Ok(Lead::StandsBy);
        }
        self.forget_all();
        self.leads.store(true, Ordering::Release);
        Ok(Lead::TookOver)
    }

    /// Says again and again that it is this one, until the listener has ended.
    pub(super) async fn keep_leading(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut sure_until = clock::instant();
        while !*ended.borrow() {
            tokio::select! {
                () = clock::sleep(self.lease() / 5) => {}
                _ = ended.wait_for(|ended| *ended) => return,
            }
            let lanes = self.work.lanes();
            let (true, Some(lane)) = (self.leads.load(Ordering::Acquire), lanes.first()) else { continue };
            let asked = clock::instant();
            match lane.lead(&mut self.work.link.clone(), self.lease()).await {
                Ok(true) => sure_until = asked + self.lease(),
                Err(_) if clock::instant() < sure_until => {}
                Ok(false) | Err(_) => self.lost_lead(lane),
            }
        }
    }

    pub(super) fn lost_lead(&self, lane: &Lane) {
        if self.leads.swap(false, Ordering::AcqRel) {
            tracing::warn!(topic = lane.topic, group = lane.group, "ordered lease lost to another consumer");
        }
    }

    /// Entries in their order, to be handled after those of their key that stand before them.
    pub(super) async fn push(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<Taken>, is_new: bool) {
        let ids = || entries.iter().map(|taken| taken.raw.id.as_str().to_owned()).collect::<Vec<_>>();
        self.held.take(lane.priority, ids().iter().map(String::as_str));
        for (at, taken) in entries.iter().enumerate() {
            let hold = self.hold.clone().acquire_owned().await;
            let (Ok(_hold), false) = (hold, self.is_over()) else {
                // They stay pending, and whoever works next begins with them.
                let rest = ids().split_off(at);
                if is_new {
                    self.work.hand_back(lane, &rest).await;
                } else {
                    self.work.let_go(lane, rest.iter().map(String::as_str));
                }
                return self.held.release(lane.priority, rest.iter().map(String::as_str));
            };
            let item = Item { lane: lane.clone(), taken: taken.clone(), is_new, _hold };
            self.enqueue(self.key_of(&item), item);
        }
    }

    fn key_of(&self, Item { lane, taken, .. }: &Item) -> Vec<u8> {
        // One without a key is alone with its id.
        let key = catch_unwind(AssertUnwindSafe(|| (self.key)(&taken.raw))).unwrap_or_else(|_| {
            tracing::error!(topic = lane.topic, id = %taken.raw.id, "key function panicked, entry has no key");
            None
        });
        key.unwrap_or_else(|| taken.raw.id.as_str().as_bytes().to_vec())
    }

    fn enqueue(self: &Arc<Self>, key: Vec<u8>, item: Item) {
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(&key) {
            // One that was found again may stand before some that wait.
            let at = queue.iter().position(|other| other.is_behind(&item)).unwrap_or(queue.len());
            queue.insert(at, item);
            return;
        }
        queues.insert(key.clone(), VecDeque::new());
        tokio::spawn(self.clone().empty(key, item));
    }

    /// One key: one after the other, until there is none.
    async fn empty(self: Arc<Self>, key: Vec<u8>, first: Item) {
        let mut next = Some(first);
        while let Some(item) = next {
            let (priority, id) = (item.lane.priority, item.taken.raw.id.clone());
            self.finish(item).await;
            self.held.release(priority, std::iter::once(id.as_str()));
            let mut queues = self.queues();
            next = queues.get_mut(&key).and_then(VecDeque::pop_front);
            if next.is_none() {
                queues.remove(&key);
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.stop.borrow() || !self.leads.load(Ordering::Acquire)
    }

    async fn pause(&self, wait: Duration) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = clock::sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Until it is done, or given up, or this consumer has to stop: others of its key wait for that.
    async fn finish(&self, item: Item) {
        let Item { lane, mut taken, mut is_new, .. } = item;
        let work = &self.work;
        let id = taken.raw.id.clone();
        let mut backoff = BACKOFF.0;
        loop {
            if let Some(wait) = taken.wait.filter(|wait| !wait.is_zero()) {
                self.pause(wait).await;
            }
            if self.is_over() && taken.wait.is_none() {
                // Handed back, it would be no suspect any more.
                return work.let_go(&lane, std::iter::once(id.as_str()));
            }
            if self.is_over() {
                return work.hand_back(&lane, &[id.as_str().to_owned()]).await;
            }
            work.hand.take(lane.priority, std::iter::once(id.as_str()));
            let handled = AssertUnwindSafe(self.handle(&lane, taken.clone(), is_new)).catch_unwind().await;
            // Not the handler's panic: nobody knows what became of it.
            match handled.unwrap_or(Left::Unsettled) {
                Left::Over => return,
                Left::Again(wait) => {
                    taken.failures += 1;
                    taken.raw.attempt += 1;
                    taken.wait = Some(wait.max(Duration::from_millis(1)));
                    backoff = BACKOFF.0;
                }
                Left::Unsettled => {
                    // A suspect stays one.
                    taken.wait = taken.wait.map(|_| Duration::ZERO);
                    self.pause(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
            is_new = false;
        }
    }

    async fn handle(&self, lane: &Arc<Lane>, taken: Taken, is_new: bool) -> Left {
        let work = &self.work;
        if taken.wait.is_none() {
            return reclaiming::handle(work, lane, taken).await;
        }
        let id = taken.raw.id.clone();
        let Ok(_room) = work.room.acquire().await else { return Left::Over };
        let attempt = work.attempt(Manner::Among);
        if !is_new {
            match lane.begin(&mut work.link.clone(), id.as_str(), false, &attempt.name).await {
                Ok(true) => {}
                Ok(false) => {
                    work.hand.release(lane.priority, std::iter::once(id.as_str()));
                    return Left::Over;
                }
                Err(error) => {
                    tracing::warn!(topic = lane.topic, %id, %error, "attempt not recorded yet");
                    return Left::Unsettled;
                }
            }
        }
        work.run(lane, vec![taken], &attempt).await
    }

    /// Waits until nothing is in hand.
    pub(super) async fn emptied(&self) {
        let all = u32::try_from(self.hold_max).unwrap_or(u32::MAX);
        let _ = self.hold.acquire_many(all).await;
    }

    /// Lets the next one work.
    pub(super) async fn let_go(&self) {
        if let (true, Some(lane)) = (self.leads.swap(false, Ordering::AcqRel), self.work.lanes().first()) {
            let _ = lane.let_go(&mut self.work.link.clone()).await;
        }
    }
}
