//! How often to sweep: the bounded look that backs up every wake-up.

use std::time::Duration;

use crate::{ErrorCode, Invalid, Monotonic};

/// The pace of the sweep. [`check`](Self::check) says what makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepSettings {
    /// The first interval.
    pub initial: Duration,
    /// The shortest, under load or when sweeps find what wake-ups missed.
    pub min: Duration,
    /// The longest while something is due soon.
    pub max: Duration,
    /// The longest when nothing is due within it.
    pub idle_max: Duration,
}

impl Default for SweepSettings {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            min: Duration::from_millis(20),
            max: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
        }
    }
}

impl SweepSettings {
    /// The shortest interval between two sweeps: less would be a busy loop.
    pub const MIN: Duration = Duration::from_millis(1);

    /// Refuses intervals that contradict each other, and those that would keep the store busy with nothing but sweeps.
    pub fn check(&self) -> Result<(), Invalid> {
        let refused = |name: &str, detail: String| {
            Err(Invalid::new(ErrorCode::BadScan, format!("scan.{name}"), detail))
        };
        for (name, interval) in [("min", self.min), ("max", self.max), ("idle_max", self.idle_max)] {
            if interval < Self::MIN {
                return refused(name, format!("it is {interval:?}, shorter than {:?}", Self::MIN));
            }
        }
        let order = [("min", self.min, "max", self.max), ("max", self.max, "idle_max", self.idle_max)];
        for (low, from, high, to) in order {
            if from > to {
                return refused(low, format!("it is {from:?}, longer than {high}, which is {to:?}"));
            }
        }
        Ok(())
    }

    /// The same pace with every interval in its place, whatever it was: the sweeper must not panic, and not spin.
    fn bounded(self) -> Self {
        let min = self.min.max(Self::MIN);
        let max = self.max.max(min);
        Self { initial: self.initial, min, max, idle_max: self.idle_max.max(min) }
    }
}

/// What one sweep came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Something that no wake-up had told.
    pub(super) news: bool,
    /// Something is due within [`SweepSettings::idle_max`].
    pub(super) near: bool,
    pub(super) again_within: Option<Duration>,
    pub(super) next_lease_end: Option<Monotonic>,
}

#[derive(Debug)]
pub(super) struct Sweeper {
    pace: SweepSettings,
    interval: Duration,
    /// `None` while a sweep is under way.
    next: Option<Monotonic>,
    failures: u32,
}

impl Sweeper {
    pub(super) fn new(pace: SweepSettings) -> Self {
        let pace = pace.bounded();
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
        let SweepSettings { min, max, idle_max, .. } = self.pace;
        let interval = if found.news { self.interval / 2 } else { self.interval.saturating_mul(3) / 2 };
        // Not `clamp`, which panics when the bounds are the wrong way round.
        self.interval = interval.min(max).max(min);
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
        let mut sweeper = Sweeper::new(SweepSettings::default());
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
    fn contradicting_intervals_are_refused_and_stop_no_sweep() {
        let (second, edge) = (Duration::from_secs(1), SweepSettings::default());
        for (pace, path) in [
            (SweepSettings { min: 3 * second, max: 2 * second, ..edge.clone() }, "scan.min"),
            (SweepSettings { max: 3 * second, ..edge.clone() }, "scan.max"),
            (SweepSettings { min: Duration::ZERO, ..edge.clone() }, "scan.min"),
            (
                SweepSettings { min: Duration::ZERO, max: Duration::ZERO, idle_max: Duration::ZERO, ..edge },
                "scan.min",
            ),
        ] {
            assert_eq!(pace.check().unwrap_err().path, path, "{pace:?}");
            let now = Monotonic::from_micros(1_000_000);
            let mut sweeper = Sweeper::new(pace);
            for found in [NOTHING, Found { news: true, ..NOTHING }, Found { near: true, ..NOTHING }] {
                sweeper.found(now, found);
                assert!(interval(&sweeper, now) >= SweepSettings::MIN, "{sweeper:?}");
            }
        }
        assert_eq!(SweepSettings::default().check(), Ok(()));
    }

    #[test]
    fn the_wishes_of_the_store_are_honoured() {
        let now = Monotonic::from_micros(1_000_000);
        let mut sweeper = Sweeper::new(SweepSettings::default());
        sweeper.found(now, Found { again_within: Some(Duration::from_millis(700)), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(700));
        let end = now.saturating_add(Duration::from_millis(300));
        sweeper.found(now, Found { next_lease_end: Some(end), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(300));
        sweeper.found(now, Found { next_lease_end: Some(now), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(20));
    }
}
