//! A histogram of microseconds that costs one addition.

use std::time::Duration;

use duly_client::wire::Lateness;

/// 64 steps for every doubling: an error of at most 1.6 %.
const STEP_BITS: u32 = 6;
const STEPS: usize = 1 << STEP_BITS;
/// Up to 2^40 µs, about twelve days.
const BUCKETS: usize = (40 - STEP_BITS as usize + 1) * STEPS;

/// How often which time was taken.
#[derive(Clone)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, max_us: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, us: u64) {
        self.buckets[bucket(us)] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    pub(crate) fn record_span(&mut self, span: Duration) {
        self.record(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += theirs;
        }
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Each is the upper end of its step, so never too small.
    pub(crate) fn quantiles(&self) -> Lateness {
        Lateness {
            p50_ms: self.at(0.5),
            p99_ms: self.at(0.99),
            p999_ms: self.at(0.999),
            max_ms: self.max_us as f64 / 1_000.0,
            count: self.count,
        }
    }

    fn at(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let place = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        place.map_or(0.0, |place| upper_end(place).min(self.max_us) as f64 / 1_000.0)
    }
}

fn bucket(us: u64) -> usize {
    let us = us.max(STEPS as u64);
    let doubling = us.ilog2() - STEP_BITS;
    let step = (us >> doubling) as usize - STEPS;
    (doubling as usize * STEPS + step).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let (doubling, step) = (bucket / STEPS, bucket % STEPS);
    (((STEPS + step + 1) as u64) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_small_and_hardly_too_large() {
        for us in [64, 100, 999, 1_000, 12_345, 1_000_000, 3_600_000_000] {
            let end = upper_end(bucket(us));
            assert!(end >= us && end as f64 <= us as f64 * 1.016, "{us}: {end}");
        }
    }

    #[test]
    fn two_histograms_add_up() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        (0..990).for_each(|_| one.record(1_000));
        (0..10).for_each(|_| two.record(50_000));
        one.merge(&two);
        let quantiles = one.quantiles();
        assert_eq!((quantiles.count, quantiles.max_ms), (1_000, 50.0));
        assert!(quantiles.p99_ms < 1.02 && quantiles.p999_ms > 49.0, "{quantiles:?}");
    }

    #[test]
    fn nothing_measured_is_zero_and_an_age_is_the_last_step() {
        assert_eq!(Histogram::default().quantiles().p99_ms, 0.0);
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantiles().count, 1);
    }
}
