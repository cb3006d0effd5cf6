//! What a lane remembers of destinations that answered, also while they are idle.

use std::{collections::HashMap, time::Duration};

/// Destinations of one generation. Two are kept.
const GENERATION_MAX: usize = 1_024;
/// Longer answers count as this, so that one of them does not count for long.
const TIME_MAX: Duration = Duration::from_secs(1);

/// How long the answers of recent destinations took.
///
/// Bounded: when the newer generation is full, it replaces the older one.
#[derive(Debug, Default)]
pub(super) struct Answers {
    newer: HashMap<u64, Duration>,
    older: HashMap<u64, Duration>,
}

impl Answers {
    /// The typical time of the destination's recent answers.
    pub(super) fn time(&self, destination: u64) -> Option<Duration> {
        self.newer.get(&destination).or_else(|| self.older.get(&destination)).copied()
    }

    /// An answer took this long. Returns the typical time: it grows at once, and shrinks by an eighth of the difference.
    pub(super) fn record(&mut self, destination: u64, took: Duration) -> Duration {
        let took = took.min(TIME_MAX);
        let before = self.time(destination).unwrap_or_default();
        let typical = took.max((before * 7 + took) / 8);
        self.older.remove(&destination);
        self.newer.insert(destination, typical);
        if self.newer.len() > GENERATION_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        typical
    }

    /// How many destinations are remembered, and at most.
    #[cfg(test)]
    pub(super) fn len_and_max(&self) -> (usize, usize) {
        (self.newer.len() + self.older.len(), 2 * GENERATION_MAX + 1)
    }
}
