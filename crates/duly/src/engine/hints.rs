//! "Something is due soon": from senders to the driver and to waiting receivers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, Timestamp, Topic};
use tokio::sync::Notify;

/// Hints that wait for the driver, the earliest per lane, and the receivers that wait for a topic.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// By lane in order, so that a simulation can be repeated.
    told: Mutex<BTreeMap<Lane, Timestamp>>,
    pub(crate) news: Notify,
    waiting: Mutex<HashMap<Topic, Arc<Notify>>>,
}

impl Hints {
    /// Something of `lane` is due at `due`.
    pub(crate) fn tell(&self, lane: Lane, due: Timestamp) {
        if let Lane::Queue(topic) = &lane
            && let Some(waiting) = lock(&self.waiting).get(topic)
        {
            waiting.notify_one();
        }
        let mut told = lock(&self.told);
        let first = told.is_empty();
        told.entry(lane).and_modify(|known| *known = due.min(*known)).or_insert(due);
        drop(told);
        // While older ones wait, the driver is on its way already.
        if first {
            self.news.notify_one();
        }
    }

    pub(crate) fn take(&self) -> BTreeMap<Lane, Timestamp> {
        std::mem::take(&mut *lock(&self.told))
    }

    /// Something came back from a lease that ended, nobody knows where: every queue has one receiver look.
    pub(crate) fn wake_receivers(&self) {
        lock(&self.waiting).values().for_each(|events| events.notify_one());
    }

    /// What a receiver of `topic` waits on. Forgotten when nobody waits any more.
    pub(crate) fn listen(&self, topic: &Topic) -> Arc<Notify> {
        let mut waiting = lock(&self.waiting);
        // Topics come and go: the bell of one that nobody waits for is dropped with the next listener.
        waiting.retain(|known, events| known == topic || Arc::strong_count(events) > 1);
        waiting.entry(topic.clone()).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
