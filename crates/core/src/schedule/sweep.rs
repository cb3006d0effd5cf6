//! The interval of the sweep, which finds what wake-ups missed.

use std::time::Duration;

use crate::{ErrorCode, Invalid, Monotonic};

/// The intervals of the sweep. [`check`](Self::check) refuses contradictions.
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

    /// Refuses intervals that contradict each other or would keep the store busy.
    pub fn check(&self) -> Result<(), Invalid> {
        let refused = |name: &str, detail: String| {
            Err(Invalid::new(ErrorCode::BadSweep, format!("sweep.{name}"), detail))
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

    /// The same intervals, made valid: the sweeper must neither panic nor spin.
    fn bounded(self) -> Self {
        let min = self.min.max(Self::MIN);
        let max = self.max.max(min);
        Self { initial: self.initial, min, max, idle_max: self.idle_max.max(min) }
    }
}

/// The findings of one sweep.
#[derive(Debug, Clone, Copy)]
pub(super) struct SweepFindings {
    /// Whether it found due messages that no hint had announced.
    pub(super) has_new_work: bool,
    /// Whether something is due within [`SweepSettings::idle_max`].
    pub(super) has_work_soon: bool,
    pub(super) again_within: Option<Duration>,
    pub(super) next_lease_end: Option<Monotonic>,
}

#[derive(Debug)]
pub(super) struct Sweeper {
    settings: SweepSettings,
    interval: Duration,
    /// `None` while a sweep runs.
    next: Option<Monotonic>,
    failures: u32,
}

impl Sweeper {
    pub(super) fn new(settings: SweepSettings) -> Self {
        let settings = settings.bounded();
        Self { interval: settings.initial, settings, next: Some(Monotonic::default()), failures: 0 }
    }

    pub(super) fn idle_max(&self) -> Duration {
        self.settings.idle_max
    }

    pub(super) fn next(&self) -> Option<Monotonic> {
        self.next
    }

    /// Whether to sweep now; then the sweep counts as running.
    pub(super) fn begin(&mut self, now: Monotonic) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = None;
        }
        due
    }

    /// Sweeps at the next step, unless a sweep runs.
    pub(super) fn sweep_now(&mut self, now: Monotonic) {
        self.next = self.next.map(|next| next.min(now));
    }

    pub(super) fn found(&mut self, now: Monotonic, found: SweepFindings) {
        self.failures = 0;
        let SweepSettings { min, max, idle_max, .. } = self.settings;
        let interval =
            if found.has_new_work { self.interval / 2 } else { self.interval.saturating_mul(3) / 2 };
        // Not `clamp`, which panics when the bounds are the wrong way round.
        self.interval = interval.min(max).max(min);
        let mut wait = if found.has_work_soon || found.has_new_work { self.interval } else { idle_max };
        if let Some(within) = found.again_within {
            wait = wait.min(within);
        }
        if let Some(end) = found.next_lease_end {
            wait = wait.min(end.since(now));
        }
        // The store may ask for an earlier sweep, but never for a busy loop.
        self.next = Some(now.saturating_add(wait.max(min.min(Duration::from_millis(20)))));
    }

    /// A sweep failed. Returns the failures in a row.
    pub(super) fn failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.next = Some(now.saturating_add(wait(self.failures)));
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: SweepFindings =
        SweepFindings { has_new_work: false, has_work_soon: false, again_within: None, next_lease_end: None };

    fn interval(sweeper: &Sweeper, now: Monotonic) -> Duration {
        sweeper.next().unwrap().since(now)
    }

    #[test]
    fn the_interval_adapts_between_its_bounds() {
        let now = Monotonic::from_micros(1_000_000);
        let mut sweeper = Sweeper::new(SweepSettings::default());
        for _ in 0..10 {
            sweeper.found(now, SweepFindings { has_new_work: true, has_work_soon: true, ..NOTHING });
        }
        assert_eq!(interval(&sweeper, now), Duration::from_millis(20));
        for _ in 0..20 {
            sweeper.found(now, SweepFindings { has_work_soon: true, ..NOTHING });
        }
        assert_eq!(interval(&sweeper, now), Duration::from_millis(500));
        sweeper.found(now, NOTHING);
        assert_eq!(interval(&sweeper, now), Duration::from_secs(2));
    }

    #[test]
    fn contradicting_intervals_are_refused_and_stop_no_sweep() {
        let (second, edge) = (Duration::from_secs(1), SweepSettings::default());
        for (settings, path) in [
            (SweepSettings { min: 3 * second, max: 2 * second, ..edge.clone() }, "sweep.min"),
            (SweepSettings { max: 3 * second, ..edge.clone() }, "sweep.max"),
            (SweepSettings { min: Duration::ZERO, ..edge.clone() }, "sweep.min"),
            (
                SweepSettings { min: Duration::ZERO, max: Duration::ZERO, idle_max: Duration::ZERO, ..edge },
                "sweep.min",
            ),
        ] {
            assert_eq!(settings.check().unwrap_err().path, path, "{settings:?}");
            let now = Monotonic::from_micros(1_000_000);
            let mut sweeper = Sweeper::new(settings);
            for found in [
                NOTHING,
                SweepFindings { has_new_work: true, ..NOTHING },
                SweepFindings { has_work_soon: true, ..NOTHING },
            ] {
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
        sweeper.found(now, SweepFindings { again_within: Some(Duration::from_millis(700)), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(700));
        let end = now.saturating_add(Duration::from_millis(300));
        sweeper.found(now, SweepFindings { next_lease_end: Some(end), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(300));
        sweeper.found(now, SweepFindings { next_lease_end: Some(now), ..NOTHING });
        assert_eq!(interval(&sweeper, now), Duration::from_millis(20));
    }
}
