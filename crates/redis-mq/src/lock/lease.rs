//! Until when a holder may count on its lock, judged by nobody's clock but its own.

use std::time::{Duration, Instant};

use crate::clock;

/// An instant by both clocks of the machine. The one never goes back but stands still while a machine is suspended; the other goes on but
/// may be set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    steady: Instant,
    wall_ms: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { steady: clock::instant(), wall_ms: clock::now_ms() }
    }

    /// How long ago `earlier` was: what the clock says that saw more time go by.
    fn since(&self, earlier: &Self) -> Duration {
        let steady = self.steady.saturating_duration_since(earlier.steady);
        steady.max(Duration::from_millis(self.wall_ms.saturating_sub(earlier.wall_ms)))
    }
}

/// A lease, counted from before Redis was asked for it: Redis itself counts from a little later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    asked: Moment,
    span: Duration,
}

impl Lease {
    pub(super) fn new(asked: Moment, span: Duration) -> Self {
        Self { asked, span }
    }

    /// What is left at `now`. Ends a fiftieth and two milliseconds early: two clocks do not run alike, and Redis rounds.
    pub(super) fn left(&self, now: &Moment) -> Duration {
        let sure = self.span - self.span / 50;
        sure.saturating_sub(Duration::from_millis(2)).saturating_sub(now.since(&self.asked))
    }

    /// What is left now.
    pub(super) fn left_now(&self) -> Duration {
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
        let asked = Moment::now();
        let lease = Lease::new(asked, SPAN);
        assert!(lease.left(&asked) < SPAN && lease.left(&asked) > SPAN * 9 / 10);
        assert!(lease.left(&later(asked, SPAN * 97 / 100, 0)) > Duration::ZERO);
        assert_eq!(lease.left(&later(asked, SPAN * 98 / 100, 0)), Duration::ZERO);
    }

    #[test]
    fn the_clock_that_saw_more_time_go_by_is_believed() {
        let asked = Moment::now();
        let lease = Lease::new(asked, SPAN);
        assert_eq!(lease.left(&later(asked, Duration::ZERO, 10_000)), Duration::ZERO, "suspended meanwhile");
        let set_back = Moment { steady: asked.steady + SPAN, wall_ms: asked.wall_ms - 60_000 };
        assert_eq!(lease.left(&set_back), Duration::ZERO);
    }
}
