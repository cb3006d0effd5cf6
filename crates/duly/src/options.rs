//! Settings of sinks and handlers.

use std::time::Duration;

use duly_core::{
    Invalid, RetryPolicy, TopicPatterns,
    schedule::{LaneSettings, Rate, Work},
};

use crate::{minutes, seconds};

/// How a sink is served.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Messages claimed and not yet settled, at most: also the most duplicates that a crash can leave.
    pub in_flight: usize,
    /// Calls of the sink at the same time.
    pub concurrency: usize,
    /// Messages in one call.
    pub batch: usize,
    /// Messages per second, if limited.
    pub rate: Option<Rate>,
    /// How long one call may take. Must be shorter than the lease.
    pub timeout: Duration,
    /// Its own retries, if not the general ones.
    pub retry: Option<RetryPolicy>,
    /// The topics that it takes; all, unless told otherwise. A message to another is refused when it is sent, and again before it would
    /// be delivered.
    pub topics: TopicPatterns,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            in_flight: 1_024,
            concurrency: 4,
            batch: 256,
            rate: None,
            timeout: seconds(8),
            retry: None,
            topics: TopicPatterns::default(),
        }
    }
}

impl SinkOptions {
    pub(crate) fn lane(&self, lease: Duration, retry: &RetryPolicy) -> LaneSettings {
        LaneSettings {
            in_flight: self.in_flight,
            buffered: LaneSettings::BUFFERED_MAX,
            concurrency: self.concurrency,
            batch: self.batch,
            timeout: self.timeout,
            lease,
            retry: self.retry.clone().unwrap_or_else(|| retry.clone()),
            rate: self.rate,
            movable: 0,
            work: Work::Sink,
        }
    }
}

/// A handler's lane may hold so many times its batch, done tasks included whose outcomes are being recorded.
const RECORDING_FACTOR: usize = 8;

/// How a handler is served, unless it says otherwise itself.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// Tasks handled at the same time.
    pub concurrency: usize,
    /// Tasks taken from the store at once.
    pub batch: usize,
    /// How long one task may take; its lease is renewed until then.
    pub timeout: Duration,
    /// The wait after the handler said no.
    pub again: Duration,
    /// The wait after the handler failed or panicked.
    pub failed: Duration,
    /// Total tries; then the task is a dead letter.
    pub attempts: u32,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            concurrency: 32,
            batch: 100,
            timeout: minutes(5),
            again: seconds(1),
            failed: seconds(5),
            attempts: 16,
        }
    }
}

impl HandlerOptions {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if !self.timeout.is_zero() {
            return Ok(());
        }
        let detail = "it is 0: every task would be given up as it begins";
        Err(Invalid::new("bad_timeout", "handlers.timeout", detail))
    }

    pub(crate) fn lane(&self, lease: Duration, retry: &RetryPolicy) -> LaneSettings {
        LaneSettings {
            // What is done and only waits to be recorded must not hold up what comes next.
            in_flight: self.batch.max(self.concurrency).saturating_mul(RECORDING_FACTOR),
            buffered: self.batch.max(self.concurrency),
            concurrency: self.concurrency,
            batch: 1,
            timeout: self.timeout,
            lease,
            retry: RetryPolicy { attempts: self.attempts, ..retry.clone() },
            rate: None,
            movable: 0,
            work: Work::Handler { again: self.again, failed: self.failed },
        }
    }
}
