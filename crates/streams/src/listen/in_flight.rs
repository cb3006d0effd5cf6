//! Entries that this process has read and not settled.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::Priority;

/// Ids of entries by priority, because two streams may use the same id.
#[derive(Default)]
pub(super) struct InFlight {
    ids: Mutex<[HashSet<String>; 3]>,
}

impl InFlight {
    fn ids(&self) -> MutexGuard<'_, [HashSet<String>; 3]> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert<'a>(&self, priority: Priority, ids: impl Iterator<Item = &'a str>) {
        self.ids()[priority as usize].extend(ids.map(str::to_owned));
    }

    pub(super) fn remove<'a>(&self, priority: Priority, ids: impl Iterator<Item = &'a str>) {
        let mut all = self.ids();
        for id in ids {
            all[priority as usize].remove(id);
        }
    }

    pub(super) fn all(&self, priority: Priority) -> Vec<String> {
        self.ids()[priority as usize].iter().cloned().collect()
    }
}
