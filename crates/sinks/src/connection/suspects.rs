//! Destinations that held up or ended a connection not long ago. They get connections of their own.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::Monotonic;

/// A destination is suspected for so long after it last held up or ended a connection. Longer than a breaker leaves a
/// destination alone: its next try must not hold up others again.
const SUSPECTED_TIME: Duration = Duration::from_secs(600);
/// Destinations that are suspected at the same time. The one whose time ends first is forgotten first.
const SUSPECTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Suspects(Mutex<HashMap<String, Monotonic>>);

impl Suspects {
    pub(super) fn add(&self, destination: &str, now: Monotonic) {
        let mut all = self.lock();
        if all.len() >= SUSPECTS_MAX && !all.contains_key(destination) {
            let first = all.iter().min_by_key(|(_, until)| **until).map(|(name, _)| name.clone());
            first.and_then(|name| all.remove(&name));
        }
        all.insert(destination.to_owned(), now.saturating_add(SUSPECTED_TIME));
    }

    pub(super) fn contains(&self, destination: &str, now: Monotonic) -> bool {
        let mut all = self.lock();
        let Some(until) = all.get(destination) else { return false };
        let is_suspect = *until > now;
        if !is_suspect {
            all.remove(destination);
        }
        is_suspect
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Monotonic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_forgotten_when_its_time_is_over_or_too_many_came_after_it() {
        let suspects = Suspects::default();
        let at = |seconds| Monotonic::default().saturating_add(Duration::from_secs(seconds));
        suspects.add("a", at(0));
        assert!(suspects.contains("a", at(599)) && !suspects.contains("b", at(0)));
        assert!(!suspects.contains("a", at(600)));
        suspects.add("first", at(1));
        for n in 0..SUSPECTS_MAX as u64 {
            suspects.add(&n.to_string(), at(2 + n));
        }
        assert!(!suspects.contains("first", at(300)) && suspects.contains("0", at(300)));
        assert_eq!(suspects.lock().len(), SUSPECTS_MAX);
    }
}
