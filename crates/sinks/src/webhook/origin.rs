//! Requests under way, by origin.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};

/// Paths of one named origin that may have requests under way. A path that is silent has a breaker in the scheduler; an origin that
/// is dead, with a new path for every message, has none.
pub(super) const PATHS_MAX: usize = 64;

/// The origins that requests are under way to. One that has none is forgotten: the table is no larger than what the
/// scheduler has under way.
#[derive(Default)]
pub(super) struct Origins {
    table: Arc<Mutex<Table>>,
}

type Table = HashMap<String, Entry>;

struct Entry {
    origin: Arc<Origin>,
    /// How many visits each path has. None is without one.
    paths: HashMap<String, usize>,
}

struct Origin {
    slots: Semaphore,
    /// Held by the task that makes the first connection.
    first: tokio::sync::Mutex<()>,
    /// Whether there is a connection, as far as we know.
    is_connected: AtomicBool,
}

impl Origins {
    /// Something is to be sent to `path` of the origin `name`, which has so many slots and takes so many paths at a time. `None`,
    /// if it would be one path too many.
    pub(super) fn enter(
        &self,
        name: String,
        path: &str,
        slots: usize,
        paths_max: usize,
    ) -> Option<InFlightRequest> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let first = tokio::sync::Mutex::default();
            let origin = Origin { slots: Semaphore::new(slots), first, is_connected: AtomicBool::new(false) };
            Entry { origin: Arc::new(origin), paths: HashMap::new() }
        };
        let entry = table.entry(name.clone()).or_insert_with(new);
        if !entry.paths.contains_key(path) && entry.paths.len() >= paths_max {
            return None;
        }
        *entry.paths.entry(path.to_owned()).or_default() += 1;
        Some(InFlightRequest {
            name,
            path: path.to_owned(),
            origin: entry.origin.clone(),
            table: self.table.clone(),
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One request's part in its origin.
pub(super) struct InFlightRequest {
    name: String,
    path: String,
    origin: Arc<Origin>,
    table: Arc<Mutex<Table>>,
}

impl InFlightRequest {
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

    /// The connection that requests shared is not used any more: the next of them makes another, and those after it wait for it.
    pub(super) fn disconnected(&self) {
        self.origin.is_connected.store(false, Ordering::Release);
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

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = table.get_mut(&self.name) else { return };
        if let Some(requests) = entry.paths.get_mut(&self.path) {
            *requests -= 1;
            if *requests == 0 {
                entry.paths.remove(&self.path);
            }
        }
        if entry.paths.is_empty() {
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
        let enter = |name: String| origins.enter(name, "/", 2, PATHS_MAX).unwrap();
        let requests: Vec<_> = (0..10_000).map(|n| enter(format!("http://{n}"))).collect();
        assert_eq!(origins.len(), 10_000);
        let again = enter("http://7".into());
        drop(requests);
        assert_eq!(origins.len(), 1);
        drop(again);
        assert_eq!(origins.len(), 0);
    }

    #[test]
    fn an_origin_takes_so_many_paths_and_any_number_of_each() {
        let origins = Origins::default();
        let enter = |name: &str, path: &str| origins.enter(name.into(), path, 2, 2);
        let (one, two) = (enter("a", "/1"), enter("a", "/2"));
        assert!(one.is_some() && two.is_some() && enter("a", "/3").is_none());
        assert!(enter("a", "/1").is_some() && enter("b", "/3").is_some());
        drop(one);
        assert!(enter("a", "/3").is_some());
    }
}
