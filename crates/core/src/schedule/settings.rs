//! Settings of the scheduler and its lanes.

use std::time::Duration;

use super::SweepSettings;
use crate::RetryPolicy;

/// The settings of one scheduler.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The intervals of the sweep.
    pub sweep: SweepSettings,
    /// Seed of the jitter. The same seed gives the same run.
    pub seed: u64,
}

/// The settings of one lane.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// Messages claimed and not yet settled, at most.
    pub in_flight: usize,
    /// Messages claimed and not yet passed to the sink or handler, at most: other nodes could deliver them meanwhile.
    pub buffered: usize,
    /// Calls of the sink or handler at the same time.
    pub concurrency: usize,
    /// Messages in one call.
    pub batch: usize,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// Attempts, and the waits between them.
    pub retry: RetryPolicy,
    /// Messages per second, if limited.
    pub rate: Option<Rate>,
    /// How many messages the store may deliver by itself at once; 0 if it cannot.
    pub in_store_max: usize,
    /// What takes the messages.
    pub worker: LaneWorker,
}

/// What takes the messages of a lane, and so what its failures mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneWorker {
    /// A sink: waits follow the retry policy, and a breaker guards it.
    Sink,
    /// A handler of this process, or a receiver. The first wait depends on how the attempt ended and replaces `min` of
    /// the retry policy. No breaker.
    Handler {
        /// The first wait after a retry verdict or a nack without an error.
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
    /// Messages that may pass at once after a quiet time, at least one.
    pub burst: u32,
}

impl LaneSettings {
    /// The largest `in_flight` of a lane: it bounds the memory that a hanging target costs.
    pub const IN_FLIGHT_MAX: usize = 10_000;
    /// The largest `buffered` of a lane.
    pub const BUFFERED_MAX: usize = 2_048;
    /// The largest `in_store_max`: what is reported of them is held in memory.
    pub const IN_STORE_MAX: usize = 8_192;

    /// The shortest lease. A quarter of it passes between two renewals.
    pub const LEASE_MIN: Duration = Duration::from_millis(10);

    /// The longest lease. Messages of a dead process wait for as long.
    pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);

    /// The settings with every number inside its bounds.
    pub(super) fn bounded(mut self) -> Self {
        self.in_flight = self.in_flight.clamp(1, Self::IN_FLIGHT_MAX);
        self.buffered = self.buffered.clamp(1, Self::BUFFERED_MAX);
        self.concurrency = self.concurrency.max(1);
        self.batch = self.batch.clamp(1, Self::BUFFERED_MAX);
        self.in_store_max = self.in_store_max.min(Self::IN_STORE_MAX);
        self.lease = self.lease.clamp(Self::LEASE_MIN, Self::LEASE_MAX);
        self.retry.attempts = self.retry.attempts.max(1);
        self
    }
}
