//! Hints: "something is due soon", from senders to the driver and to waiting receivers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, Timestamp, Topic};
use tokio::sync::Notify;

/// Hints for the driver, the earliest per lane, and the receivers that wait for a topic.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Sorted by lane, so that a simulation is repeatable.
    pending: Mutex<BTreeMap<Lane, Timestamp>>,
    pub(crate) changed: Notify,
    waiting: Mutex<HashMap<Topic, Arc<Notify>>>,
}

impl Hints {
    /// Something of `lane` is due at `due`.
    pub(crate) fn push(&self, lane: Lane, due: Timestamp) {
        if let Lane::Queue(topic) = &lane
            && let Some(waiting) = lock(&self.waiting).get(topic)
        {
            waiting.notify_one();
        }
        let mut pending = lock(&self.pending);
        let first = pending.is_empty();
        pending.entry(lane).and_modify(|known| *known = due.min(*known)).or_insert(due);
        drop(pending);
        // While older ones are pending, the driver is awake already.
        if first {
            self.changed.notify_one();
        }
    }

    pub(crate) fn take(&self) -> BTreeMap<Lane, Timestamp> {
        std::mem::take(&mut *lock(&self.pending))
    }

    /// Leases ended, and it is unknown in which queues: wakes one receiver of every queue.
    pub(crate) fn wake_receivers(&self) {
        lock(&self.waiting).values().for_each(|notify| notify.notify_one());
    }

    /// The notification for receivers of `topic`. Dropped when nobody waits any more.
    pub(crate) fn subscribe(&self, topic: &Topic) -> Arc<Notify> {
        let mut waiting = lock(&self.waiting);
        // The entries of topics without receivers are dropped here.
        waiting.retain(|known, notify| known == topic || Arc::strong_count(notify) > 1);
        waiting.entry(topic.clone()).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
