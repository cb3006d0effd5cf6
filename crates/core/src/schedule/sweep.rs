//! How often to sweep: the bounded look that backs up every wake-up.

use std::time::Duration;

use crate::Monotonic;

/// The pace of the sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// The first interval.
    pub initial: Duration,
    /// The shortest, under load or when sweeps find what wake-ups missed.
    pub min: Duration,
    /// The longest while something is due soon.
    pub max: Duration,
    /// The longest when nothing is due within it.
    pub idle_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            min: Duration::from_millis(20),
            max: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
        }
    }
}

/// What one sweep came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Something that no wake-up had told.
    pub(super) news: bool,
    /// Something is due within [`Pace::idle_max`].
    pub(super) near: bool,
    pub(super) again_within: Option<Duration>,
    pub(super) next_lease_end: Option<Monotonic>,
}

#[derive(Debug)]
pub(super) struct Sweeper {
    pace: Pace,
    interval: Duration,
    /// `None` while a sweep is under way.
    next: Option<Monotonic>,
    failures: u32,
}

impl Sweeper {
    pub(super) fn new(pace: Pace) -> Self {
        Self { interval: pace.initial, pace, next: Some(Monotonic::default()), failures: 0 }
    }

    pub(super) fn idle_max(&self) -> Duration {
        self.pace.idle_max
    }

    pub(super) fn next(&self) -> Option<Monotonic> {
        self.next
    }

    /// Whether to sweep now; if so, it is under way.
    pub(super) fn begin(&mut self, now: Monotonic) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = None;
        }
        due
    }

    /// Sweep at the next step, if none is under way.
    pub(super) fn hurry(&mut self, now: Monotonic) {
        self.next = self.next.map(|next| next.min(now));
    }

    pub(super) fn found(&mut self, now: Monotonic, found: Found) {
        self.failures = 0;
        let Pace { min, max, idle_max, .. } = self.pace;
        self.interval =
            if found.news { self.interval / 2 } else { self.interval.saturating_mul(3) / 2 }.clamp(min, max);
        let mut wait = if found.near || found.news { self.interval } else { idle_max };
        if let Some(within) = found.again_within {
            wait = wait.min(within);
        }
        if let Some(end) = found.next_lease_end {
            wait = wait.min(end.since(now));
        }
        // What the store asks for may be sooner than the pace, but never a busy loop.
        self.next = Some(now.saturating_add(wait.max(min.min(Duration::from_millis(20)))));
    }

    /// Says how often in a row it failed.
    pub(super) fn failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.next = Some(now.saturating_add(wait(self.failures)));
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Found = Found { news: false, near: false, again_within: None, next_lease_end: None };

    fn interval(sweeper: &Sweeper, now: Monotonic) -> Duration {
        sweeper.next().unwrap().since(now)
    }

    #[test]
    fn the_pace_adapts_between_its_bounds() {
        let now = Monotonic::from_micros(1_000_000);
        let mut sweeper = Sweeper::new(Pace::default());
        for _ in 0..10 {
            sweeper.found(now, Found { news: true, near: true, ..NOTHING });
        }
        assert_eq!(interval(&sweeper, now), Duration::from_millis(20));
        for _ in 0..20 {
            sweeper.found(now, Found { near: true, ..NOTHING });
        }
        assert_eq!(interval(&sweeper, now), Duration::from_millis(500));
        sweeper.found(now, NOTHING);
        assert_eq!(interval(&sweeper, now), Duration::from_secs(2));
    }

    #[test]
    fn the_wishes_of_the_store_are_honoured() {
        let now = Monotonic::from_micros(1_000_000);
        let mut sweeper = Sweeper::new(Pace::default());
        sweeper.found(now, Found { again_within: Some(Duration::from_millis(700)), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(700));
        let end = now.saturating_add(Duration::from_millis(300));
        sweeper.found(now, Found { next_lease_end: Some(end), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(300));
        sweeper.found(now, Found { next_lease_end: Some(now), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(20));
    }
}
