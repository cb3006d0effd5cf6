//! Options of sinks and handlers.

use std::time::Duration;

use duly_core::{
    Backoff, ErrorCode, Invalid, RetryPolicy, TopicPatterns,
    schedule::{LaneSettings, LaneWorker, Rate},
};

use crate::{minutes, seconds};

/// Options of a sink.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Messages in flight, at most: also the most duplicates that a crash can cause. Up to 10,000; more is refused.
    pub in_flight: usize,
    /// Calls at the same time.
    pub concurrency: usize,
    /// Messages in one call. Up to 2,048; more is refused.
    pub batch: usize,
    /// Messages per second, if limited.
    pub rate: Option<Rate>,
    /// How long one call may take. Must be shorter than the lease.
    pub timeout: Duration,
    /// Its retry policy, if not the default one.
    pub retry: Option<RetryPolicy>,
    /// The topics that it accepts; all by default. Messages to others are refused when they are sent, and again before
    /// they would be delivered.
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
    /// Refuses numbers beyond the limits of a lane.
    pub(crate) fn check(&self, path: &str) -> Result<(), Invalid> {
        let numbers = [
            ("in_flight", self.in_flight, LaneSettings::IN_FLIGHT_MAX),
            ("batch", self.batch, LaneSettings::BUFFERED_MAX),
        ];
        for (name, number, max) in numbers {
            if number > max {
                let detail = format!("it is {number}, and may be {max} at most");
                return Err(Invalid::new(ErrorCode::BadLimit, format!("{path}.{name}"), detail));
            }
        }
        Ok(())
    }

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
            in_store_max: 0,
            worker: LaneWorker::Sink,
        }
    }
}

/// In-flight limit of a handler's lane as a multiple of its batch: includes tasks that are done and being recorded.
const RECORDING_FACTOR: usize = 8;

/// Default options of handlers.
#[derive(Debug, Clone)]
pub struct HandlerOptions {
    /// Tasks handled at the same time.
    pub concurrency: usize,
    /// Tasks claimed at once.
    pub batch: usize,
    /// How long one task may take; its lease is renewed until then.
    pub timeout: Duration,
    /// The first wait after a retry verdict, or a nack without an error.
    pub again: Duration,
    /// The first wait after a failure or panic, a nack with an error, or a lost lease.
    pub failed: Duration,
    /// The longest wait.
    pub max: Duration,
    /// How the wait grows from attempt to attempt.
    pub backoff: Backoff,
    /// Attempts; then the task is a dead letter.
    pub attempts: u32,
}

/// With the default waits, the last attempt comes 78 to 157 minutes after the first (after failures 90 to 181): a
/// handler whose database is unreachable for half an hour loses nothing.
const ATTEMPTS: u32 = 25;

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            concurrency: 32,
            batch: 100,
            timeout: minutes(5),
            again: seconds(1),
            failed: seconds(5),
            max: minutes(10),
            backoff: Backoff::Exponential,
            attempts: ATTEMPTS,
        }
    }
}

impl HandlerOptions {
    /// Sets the retry policy, for retry verdicts and failures alike.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        let RetryPolicy { attempts, backoff, min, max } = policy;
        Self { attempts, backoff, again: min, failed: min, max, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let settings = [
            (
                ErrorCode::BadTimeout,
                "timeout",
                self.timeout.is_zero(),
                "every task would be given up as it begins",
            ),
            (ErrorCode::BadHandler, "concurrency", self.concurrency == 0, "no task would ever be handled"),
            (ErrorCode::BadHandler, "batch", self.batch == 0, "no task would ever be taken"),
            (ErrorCode::BadRetry, "attempts", self.attempts == 0, "every task would be a dead letter"),
        ];
        if let Some((code, name, _, why)) = settings.into_iter().find(|(_, _, is_zero, _)| *is_zero) {
            return Err(Invalid::new(code, format!("handlers.{name}"), format!("it is 0: {why}")));
        }
        if self.batch > LaneSettings::BUFFERED_MAX {
            let detail = format!("it is {}, and may be {} at most", self.batch, LaneSettings::BUFFERED_MAX);
            return Err(Invalid::new(ErrorCode::BadHandler, "handlers.batch", detail));
        }
        for (name, first) in [("again", self.again), ("failed", self.failed)] {
            if first > self.max {
                let detail = format!("it is {first:?}, longer than max, which is {:?}", self.max);
                return Err(Invalid::new(ErrorCode::BadRetry, format!("handlers.{name}"), detail));
            }
        }
        Ok(())
    }

    pub(crate) fn lane(&self, lease: Duration) -> LaneSettings {
        LaneSettings {
            // Tasks that only wait to be recorded must not hold up others.
            in_flight: self.batch.max(self.concurrency).saturating_mul(RECORDING_FACTOR),
            buffered: self.batch.max(self.concurrency),
            concurrency: self.concurrency,
            batch: 1,
            timeout: self.timeout,
            lease,
            retry: RetryPolicy {
                attempts: self.attempts,
                backoff: self.backoff,
                min: self.again.min(self.failed),
                max: self.max,
            },
            rate: None,
            in_store_max: 0,
            worker: LaneWorker::Handler { again: self.again, failed: self.failed },
        }
    }
}

#[cfg(test)]
mod tests {
    use duly_core::{
        ErrorScope, LeaseLoss, Outcome, Timestamp,
        schedule::{AttemptResult, DeliveryTerms, settlement_of},
        store::Settlement,
    };

    use super::*;

    /// The waits between all tries of a message that says nothing itself, with the same luck every time.
    fn all_waits(outcome: Outcome, luck: impl Fn(Duration) -> u64) -> Duration {
        let settings = HandlerOptions::default().lane(seconds(10));
        let now = Timestamp::from_millis(1_000_000);
        let wait = |attempt, random| {
            let (lost, scope) = (LeaseLoss::None, ErrorScope::Target);
            let terms = DeliveryTerms {
                attempt,
                lost,
                lost_at: None,
                due: now,
                max_lateness: None,
                retry: None,
                bytes: 0,
                message: 0,
                destination: 0,
            };
            let end = AttemptResult::Failed { outcome, detail: String::new(), retry_after: None, scope };
            match settlement_of(now, &settings, &terms, end, now, random) {
                Settlement::Retry { at, .. } => at.since(now),
                other => panic!("try {attempt} is the last: {other:?}"),
            }
        };
        (1..ATTEMPTS).map(|attempt| wait(attempt, luck(wait(attempt, 0)))).sum()
    }

    #[test]
    fn with_the_defaults_half_an_hour_of_failures_makes_no_dead_letter_whatever_the_jitter() {
        // The shortest wait of a try is drawn by 0; the longest is twice that, by the span between the two.
        let (least, most) = (|_| 0, |least: Duration| least.as_millis() as u64);
        let shortest =
            [Outcome::Again, Outcome::Failed].map(|outcome| all_waits(outcome, least).as_secs() / 60);
        assert_eq!(shortest, [78, 90]);
        assert!(shortest.iter().all(|minutes| *minutes >= 2 * 30));
        let longest =
            [Outcome::Again, Outcome::Failed].map(|outcome| all_waits(outcome, most).as_secs() / 60);
        assert!(longest[0] <= 157 && longest[1] <= 181, "{longest:?}");
    }
}
