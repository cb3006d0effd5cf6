//! The circuit breaker of a target or destination.

use std::time::Duration;

use super::Random;
use crate::Monotonic;

/// The first wait of an open breaker; it doubles. Not the retry policy, which is about messages.
const WAIT_MIN: Duration = Duration::from_millis(500);
/// The longest wait of an open breaker, unless the target asks for more.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The longest "retry after" that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How many messages may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allow {
    All,
    /// One message as a trial.
    One,
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Circuit {
    Closed,
    Open { until: Monotonic },
    Probing { until: Monotonic },
    HalfOpen,
}

#[derive(Debug, Clone)]
pub(super) struct Breaker {
    state: Circuit,
    /// Failures since it was last closed.
    failures: u32,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { state: Circuit::Closed, failures: 0 }
    }

    pub(super) fn allows(&self) -> Allow {
        match self.state {
            Circuit::Closed => Allow::All,
            Circuit::HalfOpen => Allow::One,
            Circuit::Open { .. } | Circuit::Probing { .. } => Allow::Nothing,
        }
    }

    /// When to probe the target.
    pub(super) fn probe_at(&self) -> Option<Monotonic> {
        match self.state {
            Circuit::Open { until } => Some(until),
            _ => None,
        }
    }

    /// Opens the breaker. Returns until when.
    pub(super) fn trip(
        &mut self,
        now: Monotonic,
        retry_after: Option<Duration>,
        random: &mut Random,
    ) -> Monotonic {
        let retry_after = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        // Calls that ran at the same time fail together: one outage counts as one failure.
        if let Circuit::Open { until } = &mut self.state {
            *until = (*until).max(now.saturating_add(retry_after));
            return *until;
        }
        let top = WAIT_MIN.saturating_mul(1 << self.failures.min(16)).min(WAIT_MAX);
        let spread = u64::try_from((top / 2).as_micros()).unwrap_or(u64::MAX).max(1);
        let wait = (top / 2 + Duration::from_micros(random.draw() % spread)).max(retry_after);
        self.failures = self.failures.saturating_add(1);
        let until = now.saturating_add(wait);
        self.state = Circuit::Open { until };
        until
    }

    /// A probe starts; it must be answered by then.
    pub(super) fn probing(&mut self, until: Monotonic) {
        self.state = Circuit::Probing { until };
    }

    /// Whether a probe should have been answered by now.
    pub(super) fn is_unanswered(&self, now: Monotonic) -> bool {
        matches!(self.state, Circuit::Probing { until } if until <= now)
    }

    /// A probe succeeded: one message may pass as a trial.
    pub(super) fn probe_succeeded(&mut self) {
        if let Circuit::Probing { .. } = self.state {
            self.state = Circuit::HalfOpen;
        }
    }

    /// Without a probe: after the wait, one message may pass as a trial.
    pub(super) fn half_open_after(&mut self, now: Monotonic) {
        if matches!(self.state, Circuit::Open { until } if until <= now) {
            self.state = Circuit::HalfOpen;
        }
    }

    /// A delivery succeeded. Returns whether that closed the breaker.
    pub(super) fn close_after_success(&mut self) -> bool {
        if self.state != Circuit::HalfOpen {
            return false;
        }
        *self = Self::new();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_opens_probes_half_opens_and_closes() {
        let (mut breaker, mut random) = (Breaker::new(), Random::new(1));
        assert_eq!(breaker.allows(), Allow::All);
        let until = breaker.trip(Monotonic::from_micros(0), None, &mut random);
        assert_eq!((breaker.allows(), breaker.probe_at()), (Allow::Nothing, Some(until)));
        breaker.probing(Monotonic::from_micros(9));
        assert_eq!((breaker.allows(), breaker.probe_at()), (Allow::Nothing, None));
        assert!(!breaker.is_unanswered(Monotonic::from_micros(8)));
        assert!(breaker.is_unanswered(Monotonic::from_micros(9)));
        breaker.probe_succeeded();
        assert_eq!(breaker.allows(), Allow::One);
        assert!(breaker.close_after_success());
        assert_eq!(breaker.allows(), Allow::All);
    }

    #[test]
    fn waits_grow_to_a_bound_and_a_wish_is_honoured() {
        let (mut breaker, mut random) = (Breaker::new(), Random::new(1));
        let start = Monotonic::from_micros(0);
        for _ in 0..40 {
            let until = breaker.trip(start, None, &mut random);
            assert!(until.since(start) >= WAIT_MIN / 2 && until.since(start) <= WAIT_MAX);
            breaker.probing(Monotonic::from_micros(9));
        }
        let until = breaker.trip(start, Some(Duration::from_secs(120)), &mut random);
        assert_eq!(until.since(start), Duration::from_secs(120));
    }

    #[test]
    fn calls_that_fail_together_are_one_failure() {
        let (mut breaker, mut random) = (Breaker::new(), Random::new(1));
        let until = breaker.trip(Monotonic::from_micros(0), None, &mut random);
        assert_eq!(breaker.trip(Monotonic::from_micros(1), None, &mut random), until);
        assert_eq!(breaker.failures, 1);
    }
}
