//! Whether a path or its whole server asks for time.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
};

/// Different paths in a row that ask for time before the whole server counts as busy.
const PATHS_MAX: usize = 3;

/// Paths of the sink's own url that asked for time, with no other answer since.
#[derive(Default)]
pub(super) struct BusyPaths {
    hasher: RandomState,
    paths: Mutex<Vec<u64>>,
}

impl BusyPaths {
    /// Records that `path` asks for time. Returns whether the whole server does.
    pub(super) fn record(&self, path: &str) -> bool {
        let path = self.hasher.hash_one(path);
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if !paths.contains(&path) && paths.len() < PATHS_MAX {
            paths.push(path);
        }
        paths.len() >= PATHS_MAX
    }

    /// A path took a message, or refused it for another reason.
    pub(super) fn answered(&self) {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_different_paths_in_a_row_are_the_whole_server() {
        let busy = BusyPaths::default();
        for path in ["a", "a", "a", "b", "a"] {
            assert!(!busy.record(path), "{path}");
        }
        busy.answered();
        assert!(!busy.record("b") && !busy.record("c"));
        assert!(busy.record("d") && busy.record("d"));
        busy.answered();
        assert!(!busy.record("d"));
    }
}
