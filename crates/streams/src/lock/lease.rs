//! How long a holder may rely on its lease, by its own clocks alone.

use std::time::{Duration, Instant};

use crate::clock;

/// A time by both clocks of the machine. The monotonic one may stop while the machine is suspended; wall time goes on
/// but may be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    steady: Instant,
    wall_ms: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { steady: clock::instant(), wall_ms: clock::now_ms() }
    }

    /// The time since `earlier`, by the clock that saw more time pass.
    fn since(&self, earlier: &Self) -> Duration {
        let steady = self.steady.saturating_duration_since(earlier.steady);
        steady.max(Duration::from_millis(self.wall_ms.saturating_sub(earlier.wall_ms)))
    }
}

/// A lease that starts before Redis was asked for it. In Redis it starts a little later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    requested: Moment,
    span: Duration,
}

impl Lease {
    pub(crate) fn new(requested: Moment, span: Duration) -> Self {
        Self { requested, span }
    }

    /// The remaining time at `now`. It ends 2 % and 2 ms early, because clocks differ and Redis rounds.
    pub(crate) fn left(&self, now: &Moment) -> Duration {
        let usable = self.span - self.span / 50;
        usable.saturating_sub(Duration::from_millis(2)).saturating_sub(now.since(&self.requested))
    }

    /// The remaining time.
    pub(crate) fn left_now(&self) -> Duration {
        self.left(&Moment::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);

    fn later(moment: Moment, steady: Duration, wall_ms: u64) -> Moment {
        Moment { steady: moment.steady + steady, wall_ms: moment.wall_ms + wall_ms }
    }

    #[test]
    fn a_lease_ends_for_its_holder_before_it_ends_in_redis() {
        let requested = Moment::now();
        let lease = Lease::new(requested, SPAN);
        assert!(lease.left(&requested) < SPAN && lease.left(&requested) > SPAN * 9 / 10);
        assert!(lease.left(&later(requested, SPAN * 97 / 100, 0)) > Duration::ZERO);
        assert_eq!(lease.left(&later(requested, SPAN * 98 / 100, 0)), Duration::ZERO);
    }

    #[test]
    fn the_clock_that_saw_more_time_go_by_is_believed() {
        let requested = Moment::now();
        let lease = Lease::new(requested, SPAN);
        assert_eq!(
            lease.left(&later(requested, Duration::ZERO, 10_000)),
            Duration::ZERO,
            "suspended meanwhile"
        );
        let set_back = Moment { steady: requested.steady + SPAN, wall_ms: requested.wall_ms - 60_000 };
        assert_eq!(lease.left(&set_back), Duration::ZERO);
    }
}
