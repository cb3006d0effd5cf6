//! The suite of the [`Clock`] port.

use std::{sync::Arc, time::Duration};

use duly_core::Clock;

/// A clock under test, and the hand that moves it.
pub struct Dial {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Lets a span pass; a clock that runs by itself needs nothing done.
    pub pass: Box<dyn Fn(Duration) + Send + Sync>,
    /// Steps wall time back by a span, if that can be done.
    pub step_back: Box<dyn Fn(Duration) + Send + Sync>,
}

const STEP: Duration = Duration::from_millis(1);

/// Monotonic time only grows, whatever wall time does.
pub async fn monotonic_time_never_goes_back(dial: &Dial) {
    let mut last = dial.clock.now().mono();
    for round in 0..1000 {
        match round % 3 {
            0 => (dial.pass)(STEP),
            1 => (dial.step_back)(Duration::from_secs(3600)),
            _ => tokio::task::yield_now().await,
        }
        let now = dial.clock.now().mono();
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
    }
}

/// When a sleep ends, its end has been reached; and it does end.
pub async fn a_sleep_never_ends_early(dial: &Dial) {
    for micros in [1, 999, 1000, 1001, 20_500] {
        let until = dial.clock.now().mono().saturating_add(Duration::from_micros(micros));
        let passing = async {
            loop {
                (dial.step_back)(Duration::from_secs(60));
                (dial.pass)(STEP);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = dial.clock.sleep_until(until) => {}
            () = passing => {}
        }
        assert!(dial.clock.now().mono() >= until, "a sleep of {micros} µs ended early");
    }
}

/// A sleep whose end has passed is over at once, without time passing.
pub async fn a_sleep_into_the_past_ends_at_once(dial: &Dial) {
    (dial.pass)(STEP);
    let now = dial.clock.now().mono();
    dial.clock.sleep_until(duly_core::Monotonic::from_micros(0)).await;
    dial.clock.sleep_until(now).await;
}

/// Every case of the [`Clock`] suite as a test of its own, in a module named after the clock.
#[macro_export]
macro_rules! clock_suite {
    ($name:ident, $dial:expr) => {
        mod $name {
            $crate::port_tests!(clock, $dial;
                monotonic_time_never_goes_back
                a_sleep_never_ends_early
                a_sleep_into_the_past_ends_at_once
            );
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_of_the_contract_has_its_case() {
        let here = include_str!("clock.rs");
        let lines = crate::contract_lines(include_str!("../../core/src/clock.rs"), "pub trait Clock");
        assert_eq!(lines.len(), 3);
        for line in lines {
            assert!(here.contains(&format!("pub async fn {line}(")), "{line} has no case");
        }
    }
}
