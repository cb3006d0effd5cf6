//! Measured spans: a histogram that costs a few additions, and what it looks like at one moment.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Four steps for every doubling, from a microsecond to more than an hour: an error of at most a quarter.
const STEPS: usize = 4;
const BUCKETS: usize = 33 * STEPS;

/// Spans, sorted into steps as they are recorded. Shared without a lock.
#[derive(Debug)]
pub struct Histogram {
    steps: Box<[AtomicU64]>,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            steps: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
            max_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Takes note of a span of so many microseconds.
    pub fn record(&self, span_us: u64) {
        self.steps[step(span_us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(span_us, Relaxed);
        self.max_us.fetch_max(span_us, Relaxed);
    }

    /// The spans recorded so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts: Vec<u64> = self.steps.iter().map(|count| count.load(Relaxed)).collect();
        if counts.iter().all(|count| *count == 0) {
            return HistogramSnapshot::default();
        }
        HistogramSnapshot { counts, sum_us: self.sum_us.load(Relaxed), max_us: self.max_us.load(Relaxed) }
    }
}

/// The distribution of the spans recorded by one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Per step; nothing at all if nothing was recorded.
    counts: Vec<u64>,
    sum_us: u64,
    max_us: u64,
}

impl HistogramSnapshot {
    /// The number of spans.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// The longest of them.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.max_us)
    }

    /// The span that this share of them did not exceed. The upper end of its step, so never too small.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Duration::from_micros(place.map_or(0, |place| upper_end(place).min(self.max_us)))
    }

    /// The number of spans shorter than `1 << doublings` microseconds. Exact, for exporters with such bounds.
    pub fn below(&self, doublings: u32) -> u64 {
        self.counts
            .iter()
            .enumerate()
            .filter(|(at, _)| upper_end(*at) <= 1 << doublings)
            .map(|(_, n)| n)
            .sum()
    }

    /// The spans recorded after `earlier`, an older snapshot of the same histogram. The maximum is that of all spans.
    pub fn since(&self, earlier: &Self) -> Self {
        let old = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        Self {
            counts: self.counts.iter().zip(old).map(|(new, old)| new.saturating_sub(old)).collect(),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
            max_us: self.max_us,
        }
    }

    /// Adds the spans of another histogram.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }
}

fn step(us: u64) -> usize {
    let us = us.max(STEPS as u64);
    let doubling = us.ilog2() as usize;
    let step = (us >> (doubling - 2)) as usize & (STEPS - 1);
    ((doubling - 2) * STEPS + step).min(BUCKETS - 1)
}

/// The exclusive upper bound of a step.
fn upper_end(step: usize) -> u64 {
    let (doubling, step) = (step / STEPS + 2, step % STEPS);
    ((STEPS + step + 1) as u64) << (doubling - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_small_and_at_most_a_quarter_too_large() {
        for late in [1, 4, 5, 7, 100, 999, 12_345, 3_600_000_000] {
            let histogram = Histogram::default();
            histogram.record(late);
            histogram.record(u64::from(u32::MAX));
            let p50 = histogram.snapshot().quantile(0.5).as_micros() as u64;
            assert!(p50 >= late && p50 <= (late * 5 / 4).max(5), "{late} read as {p50}");
        }
    }

    #[test]
    fn bounds_that_are_powers_of_two_are_exact() {
        let histogram = Histogram::default();
        for us in [0, 1_023, 1_024, 1_025, 2_047, 2_048, u64::MAX >> 8] {
            histogram.record(us);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(
            (snapshot.below(10), snapshot.below(11), snapshot.below(12), snapshot.count()),
            (2, 5, 6, 7)
        );
    }

    #[test]
    fn a_later_snapshot_tells_what_came_between() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot(), HistogramSnapshot::default());
        histogram.record(1_000_000);
        let before = histogram.snapshot();
        histogram.record(100);
        histogram.record(200);
        let between = histogram.snapshot().since(&before);
        assert_eq!((between.count(), between.sum()), (2, Duration::from_micros(300)));
        assert!(between.quantile(0.99) < Duration::from_millis(1));
        assert_eq!(before.since(&HistogramSnapshot::default()), before);
    }

    #[test]
    fn snapshots_add_up() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.record(10);
        two.record(20);
        let mut both = HistogramSnapshot::default();
        both.add(&one.snapshot());
        both.add(&two.snapshot());
        assert_eq!(
            (both.count(), both.sum(), both.max()),
            (2, Duration::from_micros(30), two.snapshot().max())
        );
    }
}
