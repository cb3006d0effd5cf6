//! Chance that can be repeated.

use std::time::Duration;

use duly_core::schedule::Random;

/// A stream of chance. Everybody who needs some has a stream of their own, so that one more throw here changes
/// nothing there.
#[derive(Debug)]
pub(super) struct Dice(Random);

impl Dice {
    /// The stream number `stream` of a run.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random::new(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407));
        random.draw();
        Self(random)
    }

    /// From 0 to `end`, `end` left out.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end.max(1)
    }

    /// True `percent` times in a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A span from `min` to `max`.
    pub(super) fn millis(&mut self, min: u64, max: u64) -> Duration {
        Duration::from_millis(min + self.below(max - min + 1))
    }
}
