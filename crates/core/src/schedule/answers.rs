//! What a lane remembers of destinations that answered, also while they are idle.

use std::{collections::HashMap, time::Duration};

/// Destinations of one generation that answered once. Many may never get a second message: they must not displace the
/// others.
const ONCE_MAX: usize = 2_048;
/// Destinations of one generation that answered more often.
const REGULAR_MAX: usize = 1_024;
/// Longer answers count as this, so that one of them does not count for long.
const TIME_MAX: Duration = Duration::from_secs(1);

/// How long the answers of recent destinations took.
#[derive(Debug)]
pub(super) struct Answers {
    once: Recent,
    regular: Recent,
}

impl Default for Answers {
    fn default() -> Self {
        Self { once: Recent::new(ONCE_MAX), regular: Recent::new(REGULAR_MAX) }
    }
}

impl Answers {
    /// The typical time of the destination's recent answers.
    pub(super) fn time(&self, destination: u64) -> Option<Duration> {
        self.regular.get(destination).or_else(|| self.once.get(destination))
    }

    /// Whether the destination answered more than once, and has not fallen silent since.
    pub(super) fn is_regular(&self, destination: u64) -> bool {
        self.regular.get(destination).is_some()
    }

    /// An answer took this long. Returns the typical time.
    pub(super) fn record(&mut self, destination: u64, took: Duration) -> Duration {
        let before = self.time(destination);
        let time = typical(before, took);
        self.once.remove(destination);
        let answers = if before.is_some() { &mut self.regular } else { &mut self.once };
        answers.set(destination, time);
        time
    }

    /// The destination does not answer any more: it must answer again to be regular.
    pub(super) fn fell_silent(&mut self, destination: u64) {
        if let Some(time) = self.regular.remove(destination) {
            self.once.set(destination, time);
        }
    }

    /// How many destinations are remembered, and at most.
    #[cfg(test)]
    pub(super) fn len_and_max(&self) -> (usize, usize) {
        (self.once.len() + self.regular.len(), 2 * (ONCE_MAX + REGULAR_MAX))
    }
}

/// The typical time of answers, the last of which took `took`: it grows at once, and shrinks by an eighth of the
/// difference.
pub(super) fn typical(before: Option<Duration>, took: Duration) -> Duration {
    let took = took.min(TIME_MAX);
    took.max((before.unwrap_or_default() * 7 + took) / 8)
}

/// Recent entries, bounded: when the newer generation is full, it replaces the older one.
#[derive(Debug)]
struct Recent {
    generation_max: usize,
    newer: HashMap<u64, Duration>,
    older: HashMap<u64, Duration>,
}

impl Recent {
    fn new(generation_max: usize) -> Self {
        Self { generation_max, newer: HashMap::new(), older: HashMap::new() }
    }

    fn get(&self, key: u64) -> Option<Duration> {
        self.newer.get(&key).or_else(|| self.older.get(&key)).copied()
    }

    fn set(&mut self, key: u64, time: Duration) {
        self.older.remove(&key);
        self.newer.insert(key, time);
        if self.newer.len() >= self.generation_max {
            self.older = std::mem::take(&mut self.newer);
        }
    }

    fn remove(&mut self, key: u64) -> Option<Duration> {
        self.newer.remove(&key).or_else(|| self.older.remove(&key))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}
