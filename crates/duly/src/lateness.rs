//! How late tries begin: a histogram that costs one addition.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Four steps for every doubling, from a microsecond to more than an hour: an error of at most a fifth.
const STEPS: usize = 4;
const BUCKETS: usize = 33 * STEPS;

#[derive(Debug)]
pub(crate) struct Lateness {
    buckets: Vec<AtomicU64>,
    max_us: AtomicU64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max_us: AtomicU64::new(0) }
    }
}

/// How late tries began, in quantiles. Each is the upper end of its step, so never too small.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quantiles {
    /// How many tries.
    pub count: u64,
    /// Half of them began within this.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
    /// All but one in a thousand.
    pub p999: Duration,
    /// All of them.
    pub max: Duration,
}

impl Lateness {
    pub(crate) fn record(&self, late_us: u64) {
        self.buckets[bucket(late_us)].fetch_add(1, Relaxed);
        self.max_us.fetch_max(late_us, Relaxed);
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max = self.max_us.load(Relaxed);
        let quantile = |share: f64| {
            let rank = (count as f64 * share).ceil() as u64;
            let mut seen = 0;
            let place = counts.iter().position(|count| {
                seen += count;
                seen >= rank.max(1)
            });
            Duration::from_micros(place.map_or(0, |place| upper_end(place).min(max)))
        };
        let (p50, p99, p999) = (quantile(0.5), quantile(0.99), quantile(0.999));
        Quantiles { count, p50, p99, p999, max: Duration::from_micros(max) }
    }
}

fn bucket(us: u64) -> usize {
    let us = us.max(STEPS as u64);
    let doubling = us.ilog2() as usize;
    let step = (us >> (doubling - 2)) as usize & (STEPS - 1);
    ((doubling - 2) * STEPS + step).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let (doubling, step) = (bucket / STEPS + 2, bucket % STEPS);
    ((STEPS + step + 1) as u64) << (doubling - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_small_and_at_most_a_quarter_too_large() {
        for late in [1, 4, 5, 7, 100, 999, 12_345, 3_600_000_000] {
            let lateness = Lateness::default();
            lateness.record(late);
            lateness.record(u64::from(u32::MAX));
            let p50 = lateness.quantiles().p50.as_micros() as u64;
            assert!(p50 >= late && p50 <= (late * 5 / 4).max(5), "{late} read as {p50}");
        }
    }
}
