//! When the log repeats that a sink is unreachable.

use std::time::Duration;

use duly_core::Monotonic;

use crate::{hours, minutes};

/// The first wait between two log lines of one outage; it doubles.
const WAIT_MIN: Duration = minutes(1);
/// The longest wait.
const WAIT_MAX: Duration = hours(4);

/// The log lines of one outage. A sink is probed every few seconds, which says nothing new.
#[derive(Debug)]
pub(super) struct OutageLog {
    begun: Monotonic,
    next: Monotonic,
    wait: Duration,
}

impl OutageLog {
    /// Of an outage that was logged now.
    pub(super) fn new(now: Monotonic) -> Self {
        Self { begun: now, next: now.saturating_add(WAIT_MIN), wait: WAIT_MIN }
    }

    /// How long the outage has lasted, if it is logged again.
    pub(super) fn again(&mut self, now: Monotonic) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        self.wait = (self.wait * 2).min(WAIT_MAX);
        self.next = now.saturating_add(self.wait);
        Some(now.since(self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seconds;

    #[test]
    fn an_outage_is_logged_at_growing_intervals_and_every_four_hours_at_least() {
        let begin = Monotonic::from_micros(7);
        let mut log = OutageLog::new(begin);
        let at = |passed| begin.saturating_add(passed);
        let logged: Vec<u64> = (0..5 * 86_400 / 15)
            .filter_map(|probe| log.again(at(seconds(15 * probe))))
            .map(|lasted| lasted.as_secs() / 60)
            .collect();
        assert_eq!(logged[..8], [1, 3, 7, 15, 31, 63, 127, 255]);
        assert!(logged.windows(2).all(|pair| pair[1] - pair[0] <= 240), "{logged:?}");
        assert!(logged.len() < 40, "{logged:?}");
    }
}
