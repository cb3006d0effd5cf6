//! What the scheduler is told once.

use std::time::Duration;

use super::SweepSettings;
use crate::RetryPolicy;

/// The settings of one scheduler.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How often the sweep looks.
    pub pace: SweepSettings,
    /// Where the jitter starts. The runtime draws it; the same seed gives the same run.
    pub seed: u64,
}

/// The settings of one lane.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// Messages claimed and not yet settled, at most.
    pub in_flight: usize,
    /// Messages claimed and not yet handed over, at most: what others could do meanwhile.
    pub buffered: usize,
    /// Calls of the sink or handler at the same time.
    pub concurrency: usize,
    /// Messages in one call.
    pub batch: usize,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// Total tries, and the waits between them.
    pub retry: RetryPolicy,
    /// Messages per second, if limited.
    pub rate: Option<Rate>,
    /// How many messages the store may move to the target by itself at once; 0 if it cannot.
    pub movable: usize,
    /// Who does the work.
    pub work: Work,
}

/// Who does the work of a lane, and so what its failures mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A sink: waits grow by the retry policy, and a breaker guards it.
    Sink,
    /// A handler in this process, or a receiver: the first wait depends on how the try ended and replaces the `min` of the
    /// lane's retry policy; no breaker.
    Handler {
        /// The first wait after "not now, again".
        again: Duration,
        /// The first wait after a failure or a panic.
        failed: Duration,
    },
}

/// A limit of messages per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Messages per second, at least one.
    pub per_second: u32,
    /// How many may go at once after a quiet time, at least one.
    pub burst: u32,
}

impl LaneSettings {
    /// The most that any lane may hold claimed at the same time: what a hanging target costs in memory.
    pub const IN_FLIGHT_MAX: usize = 10_000;
    /// The most that any lane may hold claimed but not yet handed to its sink or handler.
    pub const BUFFERED_MAX: usize = 2_048;
    /// The most that a store moves by itself at once: what is told of them is held in memory.
    pub const MOVABLE_MAX: usize = 8_192;

    /// The shortest lease: a quarter of it passes between two renewals, and a lease of nothing would be renewed for ever.
    pub const LEASE_MIN: Duration = Duration::from_millis(10);

    /// The longest lease. What a dead process held waits for so long; and one that never ends is always about to end.
    pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);

    /// The settings with every number inside its bounds.
    pub(super) fn bounded(mut self) -> Self {
        self.in_flight = self.in_flight.clamp(1, Self::IN_FLIGHT_MAX);
        self.buffered = self.buffered.clamp(1, Self::BUFFERED_MAX);
        self.concurrency = self.concurrency.max(1);
        self.batch = self.batch.clamp(1, Self::BUFFERED_MAX);
        self.movable = self.movable.min(Self::MOVABLE_MAX);
        self.lease = self.lease.clamp(Self::LEASE_MIN, Self::LEASE_MAX);
        self.retry.attempts = self.retry.attempts.max(1);
        self
    }
}
