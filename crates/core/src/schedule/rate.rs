//! Messages per second: a token bucket.

use crate::Monotonic;

use super::Rate;

/// One message, in millionths of a token, so that microseconds lose nothing.
const TOKEN: u64 = 1_000_000;
/// A fast lane waits for tokens of a few milliseconds rather than claim one message at a time.
const MIN_BATCH_US: u64 = 5_000;

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate: Rate,
    level: u64,
    filled: Monotonic,
}

impl Bucket {
    pub(super) fn new(rate: Rate, now: Monotonic) -> Self {
        let rate = Rate { per_second: rate.per_second.max(1), burst: rate.burst.max(1) };
        Self { rate, level: u64::from(rate.burst) * TOKEN, filled: now }
    }

    fn fill(&mut self, now: Monotonic) {
        let passed = u64::try_from(now.since(self.filled).as_micros()).unwrap_or(u64::MAX);
        let gained = passed.saturating_mul(u64::from(self.rate.per_second));
        self.level = self.level.saturating_add(gained).min(u64::from(self.rate.burst) * TOKEN);
        self.filled = self.filled.max(now);
    }

    /// Available tokens.
    pub(super) fn available(&mut self, now: Monotonic) -> usize {
        self.fill(now);
        (self.level / TOKEN) as usize
    }

    /// Takes the tokens of `count` messages.
    pub(super) fn take(&mut self, count: usize) {
        self.level = self.level.saturating_sub(count as u64 * TOKEN);
    }

    /// Returns the tokens of `count` messages that were not sent.
    pub(super) fn release(&mut self, count: usize) {
        self.level = (self.level + count as u64 * TOKEN).min(u64::from(self.rate.burst) * TOKEN);
    }

    /// When enough tokens are available again.
    pub(super) fn next(&self) -> Monotonic {
        let per_us = u64::from(self.rate.per_second);
        let min_batch = (MIN_BATCH_US * per_us).clamp(TOKEN, u64::from(self.rate.burst) * TOKEN);
        let missing = min_batch.saturating_sub(self.level);
        self.filled.saturating_add(std::time::Duration::from_micros(missing.div_ceil(per_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Monotonic::from_micros(0);
        let mut bucket = Bucket::new(Rate { per_second: 10, burst: 3 }, start);
        assert_eq!(bucket.available(start), 3);
        bucket.take(3);
        assert_eq!(bucket.available(start), 0);
        let next = bucket.next();
        assert_eq!(next, Monotonic::from_micros(100_000));
        assert_eq!(bucket.available(Monotonic::from_micros(99_999)), 0);
        assert_eq!(bucket.available(next), 1);
        assert_eq!(bucket.available(Monotonic::from_micros(60_000_000)), 3);
    }
}
