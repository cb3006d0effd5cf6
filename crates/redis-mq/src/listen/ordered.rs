//! Order: entries of one key are handled one after the other, as they stand in the stream.
//!
//! Redis hands the entries of a group to whoever reads next, so two consumers could have two entries of one key at the same
//! time. In a group that keeps order one consumer works, many keys at once; the others stand by and take its place when it is gone.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    KeyOf, reclaiming,
    work::{Left, Manner, Work},
};
use crate::{
    clock,
    group::{Lane, Taken, Whose},
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

/// What waits for others of its key.
pub(super) struct Ordered {
    key: KeyOf,
    /// Room for what is in hand.
    pub(super) hold: Arc<Semaphore>,
    hold_max: usize,
    queues: Mutex<HashMap<Vec<u8>, VecDeque<Item>>>,
    /// Whether it is this consumer that works.
    leads: AtomicBool,
    work: Arc<Work>,
    stop: watch::Receiver<bool>,
}

impl Ordered {
    pub(super) fn new(key: KeyOf, work: Arc<Work>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let hold_max = work.settings.concurrency * HELD_PER_CALL;
        let hold = Arc::new(Semaphore::new(hold_max));
        let (queues, leads) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { key, hold, hold_max, queues, leads, work, stop })
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Vec<u8>, VecDeque<Item>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Duration {
        self.work.settings.abandoned_after().max(Duration::from_millis(500))
    }

    /// Whether it is this consumer's turn. If it has just become so, what the last one left comes first.
    pub(super) async fn leads(self: &Arc<Self>, work: &Arc<Work>) -> RedisResult<bool> {
        if self.leads.load(Ordering::Acquire) {
            return Ok(true);
        }
        let lanes = work.lanes();
        let Some(first) = lanes.first() else { return Ok(false) };
        if !first.lead(&mut work.link.clone(), self.lease()).await? {
            return Ok(false);
        }
        self.leads.store(true, Ordering::Release);
        for lane in &lanes {
            let mut from = Some("0-0".to_owned());
            while let Some(begin) = from {
                let link = &mut work.link.clone();
                let (page, next) = lane.take(link, Whose::Every, Duration::ZERO, &begin, 64).await?;
                from = next;
                work.lost(lane, &page.trimmed);
                let here = work.hand.all(lane.priority);
                let is_new = |taken: &Taken| !here.iter().any(|id| id == taken.raw.id.as_str());
                let left: Vec<_> = page.entries.into_iter().filter(is_new).collect();
                work.hand.take(lane.priority, left.iter().map(|taken| taken.raw.id.as_str()));
                self.push_all(lane, left, false).await;
            }
        }
        Ok(true)
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
                Ok(false) | Err(_) => {
                    tracing::warn!(
                        topic = lane.topic,
                        group = lane.group,
                        "another consumer keeps the order now"
                    );
                    self.leads.store(false, Ordering::Release);
                }
            }
        }
    }

    /// New entries, in their order.
    pub(super) async fn push(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<Taken>) {
        self.push_all(lane, entries, true).await;
    }

    async fn push_all(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<Taken>, is_new: bool) {
        for taken in entries {
            let Ok(_hold) = self.hold.clone().acquire_owned().await else { return };
            // One without a key is alone with its id.
            let key = catch_unwind(AssertUnwindSafe(|| (self.key)(&taken.raw))).unwrap_or_else(|_| {
                tracing::error!(topic = lane.topic, id = %taken.raw.id, "what tells the key panicked: it has none");
                None
            });
            let key = key.unwrap_or_else(|| taken.raw.id.as_str().as_bytes().to_vec());
            let item = Item { lane: lane.clone(), taken, is_new, _hold };
            let mut queues = self.queues();
            if let Some(queue) = queues.get_mut(&key) {
                queue.push_back(item);
                continue;
            }
            queues.insert(key.clone(), VecDeque::new());
            tokio::spawn(self.clone().empty(key, item));
        }
    }

    /// One key: one after the other, until there is none.
    async fn empty(self: Arc<Self>, key: Vec<u8>, first: Item) {
        let mut next = Some(first);
        while let Some(item) = next {
            self.finish(item).await;
            let mut queues = self.queues();
            next = queues.get_mut(&key).and_then(VecDeque::pop_front);
            if next.is_none() {
                queues.remove(&key);
            }
        }
    }

    fn is_over(&self) -> bool {
        *self.stop.borrow() || !self.leads.load(Ordering::Acquire)
    }

    /// Until it is done, or given up, or this consumer has to stop: others of its key wait for that.
    async fn finish(&self, item: Item) {
        let Item { lane, mut taken, mut is_new, .. } = item;
        let work = &self.work;
        let id = taken.raw.id.clone();
        loop {
            if let Some(wait) = taken.wait.filter(|wait| !wait.is_zero()) {
                let mut stop = self.stop.clone();
                tokio::select! {
                    () = clock::sleep(wait) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            }
            if self.is_over() {
                return work.hand_back(&lane, &[id.as_str().to_owned()]).await;
            }
            let again = taken.clone();
            work.hand.take(lane.priority, std::iter::once(id.as_str()));
            let left = if taken.wait.is_none() {
                reclaiming::handle(work, &lane, taken).await
            } else {
                let Ok(_room) = work.room.acquire().await else { return };
                let ours =
                    is_new || lane.begin(&mut work.link.clone(), id.as_str(), false).await.unwrap_or(false);
                if !ours {
                    return work.hand.release(lane.priority, std::iter::once(id.as_str()));
                }
                work.run(&lane, vec![taken], Manner::Among).await
            };
            let Left::Again(wait) = left else { return };
            taken = again;
            taken.failures += 1;
            taken.raw.attempt += 1;
            taken.wait = Some(wait.max(Duration::from_millis(1)));
            is_new = false;
        }
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
