//! The loop that claims due timers, runs the handler and settles.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, counter};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::{
    ExpiredTimer,
    outcome::{self, Handler, RunOutcome},
    shadow::{AttemptLimit, ClaimReply, ClaimedTimer, Shadow, TimerSettlement},
};
use crate::{Retry, Settings, clock};

/// Waits between tries to settle a timer.
const SETTLE_RETRY_WAITS: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Waits after a failed claim: the first and the longest.
const CLAIM_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Handles the timers of one prefix.
pub(super) struct Worker {
    runner: Arc<TimerRunner>,
    poll: Duration,
    batch: usize,
    /// How long a claim lasts. Longer than a handler may take.
    lease: Duration,
    hint: Arc<Notify>,
    permits: Arc<Semaphore>,
    /// A unique name of this process.
    process: String,
    claims: AtomicU64,
}

struct TimerRunner {
    shadow: Shadow,
    handler: Handler<ExpiredTimer<Vec<u8>>>,
    retry: Retry,
    limit: AttemptLimit,
    /// How long a handler call may take.
    timeout: Duration,
    given_up: Counter,
    hint: Arc<Notify>,
}

impl Worker {
    pub(super) fn new(
        shadow: Shadow,
        handler: Handler<ExpiredTimer<Vec<u8>>>,
        retry: Retry,
        settings: &Settings,
        hint: Arc<Notify>,
    ) -> Self {
        let limit = AttemptLimit { attempts: retry.attempts, dead: settings.dead_letters.clone() };
        let timeout = settings.processing_timeout;
        let given_up = counter!("duly_streams_dead_timers_total", "prefix" => shadow.prefix().to_owned());
        Self {
            runner: Arc::new(TimerRunner {
                shadow,
                handler,
                retry,
                limit,
                timeout,
                given_up,
                hint: hint.clone(),
            }),
            poll: settings.poll_interval,
            batch: settings.concurrency,
            // Settling, with all its tries, must fit into the lease, too.
            lease: settings.abandoned_after() + SETTLE_RETRY_WAITS.iter().sum::<Duration>(),
            hint,
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            process: format!("{:016x}", clock::random_u64()),
            claims: AtomicU64::new(0),
        }
    }

    /// Runs until it is asked to stop and the last handler has ended.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut failures = CLAIM_BACKOFF.0;
        while !*stop.borrow() {
            let wait = match self.claim_due(&mut stop).await {
                Ok(wait) => {
                    failures = CLAIM_BACKOFF.0;
                    wait
                }
                Err(error) => {
                    tracing::warn!(
                        prefix = self.runner.shadow.prefix(),
                        %error, "timer claim failed"
                    );
                    failures = (failures * 2).min(CLAIM_BACKOFF.1);
                    failures
                }
            };
            tokio::select! {
                () = clock::sleep(wait) => {}
                () = self.hint.notified() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        let all = u32::try_from(self.batch).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
        if let Err(error) = self.runner.shadow.leave(&self.process).await {
            tracing::debug!(%error, "timer release failed");
        }
    }

    /// Claims due timers, as many as there are free permits, and starts their handlers. Returns the time to wait before
    /// the next claim. The sorted set is the truth; no event is needed.
    async fn claim_due(&self, stop: &mut watch::Receiver<bool>) -> Result<Duration, crate::Error> {
        let first = tokio::select! {
            permits = self.permits.clone().acquire_owned() => permits,
            _ = stop.wait_for(|stop| *stop) => return Ok(Duration::ZERO),
        };
        let mut permits: Vec<OwnedSemaphorePermit> = first.into_iter().collect();
        while let Ok(more) = self.permits.clone().try_acquire_owned() {
            permits.push(more);
        }
        // The claim keeps its id until it succeeds: a repeated claim gets the reply that was lost, and counts once.
        let serial = self.claims.load(Ordering::Relaxed);
        let claim_id: Arc<str> = format!("{}-{serial}", self.process).into();
        let runner = &self.runner;
        let ClaimReply { claimed, given_up, next } =
            runner.shadow.claim(permits.len(), self.lease, (&self.process, &claim_id), &runner.limit).await?;
        self.claims.fetch_add(1, Ordering::Relaxed);
        if given_up > 0 {
            runner.given_up.increment(given_up);
            let prefix = runner.shadow.prefix();
            tracing::error!(prefix, given_up, "timers given up after lost leases");
        }
        let is_full = claimed.len() == permits.len();
        for (one, permits) in claimed.into_iter().zip(permits) {
            let (runner, claim_id) = (self.runner.clone(), claim_id.clone());
            tokio::spawn(async move {
                runner.handle(one, &claim_id).await;
                drop(permits);
            });
        }
        Ok(if is_full { Duration::ZERO } else { next.map_or(self.poll, |next| next.min(self.poll)) })
    }
}

impl TimerRunner {
    async fn handle(&self, claimed: ClaimedTimer, claim_id: &str) {
        let ClaimedTimer { key, value, attempts, due_ms } = claimed;
        let expired = ExpiredTimer { key: key.clone(), value, due_ms, attempt: attempts };
        let settlement = match outcome::run((self.handler)(expired), self.timeout).await {
            RunOutcome::Done => TimerSettlement::Done,
            RunOutcome::GivenUp(why) => {
                tracing::error!(key, attempts, why, "timer given up");
                TimerSettlement::Dead(why)
            }
            RunOutcome::Retry(_, why) if self.limit.attempts > 0 && attempts >= self.limit.attempts => {
                tracing::error!(key, attempts, why, "timer given up");
                TimerSettlement::Dead(why)
            }
            RunOutcome::Retry(after, why) => {
                let wait = after.unwrap_or_else(|| self.retry.wait(attempts));
                tracing::error!(key, attempts, ?wait, why, "timer handler failed, retry scheduled");
                TimerSettlement::Retry(wait)
            }
        };
        for wait in SETTLE_RETRY_WAITS {
            match self.shadow.settle(claim_id, &key, &settlement, &self.limit).await {
                Ok(true) => {
                    self.given_up.increment(u64::from(matches!(settlement, TimerSettlement::Dead(_))));
                    // The loop may sleep for longer than this wait.
                    if matches!(settlement, TimerSettlement::Retry(_)) {
                        self.hint.notify_one();
                    }
                    return;
                }
                Ok(false) => {
                    tracing::warn!(key, attempts, "timer lease lost while its handler ran");
                    return;
                }
                Err(error) => {
                    tracing::warn!(key, %error, "timer settle failed");
                    clock::sleep(wait).await;
                }
            }
        }
        tracing::error!(key, attempts, "timer settle failed, timer is retried");
    }
}
