//! Requests under way, by origin.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};

/// The origins that requests are under way to. One that has none is forgotten: the table is no larger than what the
/// scheduler has under way.
#[derive(Default)]
pub(super) struct Origins {
    table: Arc<Mutex<Table>>,
}

type Table = HashMap<String, Arc<Origin>>;

struct Origin {
    slots: Semaphore,
    /// Whoever makes the first connection holds it.
    first: tokio::sync::Mutex<()>,
    is_connected: AtomicBool,
}

impl Origins {
    /// Something is to be sent to `name`, which has so many slots.
    pub(super) fn enter(&self, name: String, slots: usize) -> Visit {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let first = tokio::sync::Mutex::default();
            Arc::new(Origin { slots: Semaphore::new(slots), first, is_connected: AtomicBool::new(false) })
        };
        let origin = table.entry(name.clone()).or_insert_with(new).clone();
        Visit { name, origin, table: self.table.clone() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One request's part in its origin.
pub(super) struct Visit {
    name: String,
    origin: Arc<Origin>,
    table: Arc<Mutex<Table>>,
}

impl Visit {
    /// A slot, if one is free.
    pub(super) fn try_slot(&self) -> Option<SemaphorePermit<'_>> {
        self.origin.slots.try_acquire().ok()
    }

    /// A slot, in turn.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes it.
        self.origin.slots.acquire().await.ok()
    }

    /// The right to make the first connection, or nothing if there was one. Those that wait share the first connection if it
    /// speaks HTTP/2, instead of making one each.
    pub(super) async fn first(&self) -> Option<First<'_>> {
        if self.origin.is_connected.load(Ordering::Acquire) {
            return None;
        }
        let held = self.origin.first.lock().await;
        let is_connected = &self.origin.is_connected;
        (!is_connected.load(Ordering::Acquire)).then_some(First { is_connected, _held: held })
    }
}

/// The right to make the first connection.
pub(super) struct First<'a> {
    is_connected: &'a AtomicBool,
    _held: MutexGuard<'a, ()>,
}

impl First<'_> {
    /// There is a connection.
    pub(super) fn connected(self) {
        self.is_connected.store(true, Ordering::Release);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        // The table's and this one: whoever enters takes the lock first.
        if Arc::strong_count(&self.origin) == 2 {
            table.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_a_request_is_forgotten() {
        let origins = Origins::default();
        let visits: Vec<_> = (0..10_000).map(|n| origins.enter(format!("http://{n}"), 2)).collect();
        assert_eq!(origins.len(), 10_000);
        let again = origins.enter("http://7".into(), 2);
        drop(visits);
        assert_eq!(origins.len(), 1);
        drop(again);
        assert_eq!(origins.len(), 0);
    }

    #[test]
    fn an_origin_has_so_many_slots_and_no_more() {
        let origins = Origins::default();
        let enter = |name: &str| origins.enter(name.to_owned(), 2);
        let (one, two, three) = (enter("a"), enter("a"), enter("a"));
        let slots = (one.try_slot(), two.try_slot());
        assert!(slots.0.is_some() && slots.1.is_some() && three.try_slot().is_none());
        assert!(enter("b").try_slot().is_some(), "another origin has its own");
        drop(slots);
        assert!(three.try_slot().is_some());
    }
}
