//! Every clock, the same suite.
#![expect(clippy::unwrap_used, reason = "in a test kit a panic is the answer: it fails the test")]

use std::sync::Arc;

use duly::{Clock, ManualClock, SystemClock};
use testkit::clock::Dial;

/// Runs by itself, and nobody may set it.
fn system() -> Dial {
    Dial { clock: Arc::new(SystemClock::new().unwrap()), pass: Box::new(|_| {}), step_back: Box::new(|_| {}) }
}

fn manual() -> Dial {
    let clock = ManualClock::new();
    let (passing, stepping) = (clock.clone(), clock.clone());
    Dial {
        clock: Arc::new(clock),
        pass: Box::new(move |span| passing.advance(span)),
        step_back: Box::new(move |span| stepping.set_wall(stepping.now().wall().saturating_sub(span))),
    }
}

testkit::clock_suite!(system_clock, super::system());
testkit::clock_suite!(manual_clock, super::manual());
