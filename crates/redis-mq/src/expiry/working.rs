//! The loop that works on timers: claims what is due, runs the handler, settles.

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
    Expired,
    outcome::{self, Ended, Handler, Retry},
    shadow::{Claimed, Claims, End, Limit, Shadow},
};
use crate::{Settings, clock};

/// Waits before Redis is told again what became of a timer.
const TELL_AGAIN_AFTER: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// Waits after failures: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Works on the timers of one prefix.
pub(super) struct Worker {
    doing: Arc<Doing>,
    poll: Duration,
    batch: usize,
    /// How long a claim lasts: longer than a handler may take.
    lease: Duration,
    hint: Arc<Notify>,
    room: Arc<Semaphore>,
    /// The name of this process in its claims, which no other has.
    process: String,
    claims: AtomicU64,
}

struct Doing {
    shadow: Shadow,
    handler: Handler<Expired<Vec<u8>>>,
    retry: Retry,
    limit: Limit,
    /// How long a call may take.
    within: Duration,
    buried: Counter,
    hint: Arc<Notify>,
}

impl Worker {
    pub(super) fn new(
        shadow: Shadow,
        handler: Handler<Expired<Vec<u8>>>,
        (retry, attempts): (Retry, u32),
        settings: &Settings,
        hint: Arc<Notify>,
    ) -> Self {
        let limit = Limit { attempts, dead: settings.dead_letters.clone() };
        let within = settings.processing_timeout;
        let buried = counter!("redis_mq_dead_timers_total", "prefix" => shadow.prefix().to_owned());
        Self {
            doing: Arc::new(Doing { shadow, handler, retry, limit, within, buried, hint: hint.clone() }),
            poll: settings.poll_interval,
            batch: settings.concurrency,
            // What becomes of a timer must be told within the lease, too.
            lease: settings.abandoned_after() + TELL_AGAIN_AFTER.iter().sum::<Duration>(),
            hint,
            room: Arc::new(Semaphore::new(settings.concurrency)),
            process: format!("{:016x}", clock::draw()),
            claims: AtomicU64::new(0),
        }
    }

    /// Until it is told to stop; then until the last handler has ended.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut failures = BACKOFF.0;
        while !*stop.borrow() {
            let wait = match self.look(&mut stop).await {
                Ok(wait) => {
                    failures = BACKOFF.0;
                    wait
                }
                Err(error) => {
                    tracing::warn!(
                        prefix = self.doing.shadow.prefix(),
                        %error, "timer claim failed"
                    );
                    failures = (failures * 2).min(BACKOFF.1);
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
        let _ = self.room.acquire_many(all).await;
        if let Err(error) = self.doing.shadow.leave(&self.process).await {
            tracing::debug!(%error, "timer release failed");
        }
    }

    /// Begins with what is due, as far as there is room, and says when to look again. The set is the truth; no event is needed.
    async fn look(&self, stop: &mut watch::Receiver<bool>) -> Result<Duration, crate::Error> {
        let first = tokio::select! {
            room = self.room.clone().acquire_owned() => room,
            _ = stop.wait_for(|stop| *stop) => return Ok(Duration::ZERO),
        };
        let mut room: Vec<OwnedSemaphorePermit> = first.into_iter().collect();
        while let Ok(more) = self.room.clone().try_acquire_owned() {
            room.push(more);
        }
        // Under the same name until it is answered: then what a lost answer told is told again, and counted once.
        let serial = self.claims.load(Ordering::Relaxed);
        let name: Arc<str> = format!("{}-{serial}", self.process).into();
        let doing = &self.doing;
        let Claims { claimed, buried, next } =
            doing.shadow.claim(room.len(), self.lease, (&self.process, &name), &doing.limit).await?;
        self.claims.fetch_add(1, Ordering::Relaxed);
        if buried > 0 {
            doing.buried.increment(buried);
            let prefix = doing.shadow.prefix();
            tracing::error!(prefix, buried, "timers given up after lost leases");
        }
        let may_be_more = claimed.len() == room.len();
        for (one, room) in claimed.into_iter().zip(room) {
            let (doing, name) = (self.doing.clone(), name.clone());
            tokio::spawn(async move {
                doing.handle(one, &name).await;
                drop(room);
            });
        }
        Ok(if may_be_more { Duration::ZERO } else { next.map_or(self.poll, |next| next.min(self.poll)) })
    }
}

impl Doing {
    async fn handle(&self, claimed: Claimed, name: &str) {
        let Claimed { key, value, tries, due_ms } = claimed;
        let expired = Expired { key: key.clone(), value, due_ms, tries };
        let end = match outcome::run((self.handler)(expired), self.within).await {
            Ended::Done => End::Done,
            Ended::GivenUp(why) => {
                tracing::error!(key, tries, why, "timer given up");
                End::Dead(why)
            }
            Ended::Again(_, why) if self.limit.attempts > 0 && tries >= self.limit.attempts => {
                tracing::error!(key, tries, why, "timer given up");
                End::Dead(why)
            }
            Ended::Again(after, why) => {
                let wait = after.unwrap_or_else(|| self.retry.after(tries));
                tracing::error!(key, tries, ?wait, why, "timer handler failed, retry scheduled");
                End::Again(wait)
            }
        };
        for wait in TELL_AGAIN_AFTER {
            match self.shadow.settle(name, &key, &end, &self.limit).await {
                Ok(true) => {
                    self.buried.increment(u64::from(matches!(end, End::Dead(_))));
                    // The loop may sleep for longer than this one waits.
                    if matches!(end, End::Again(_)) {
                        self.hint.notify_one();
                    }
                    return;
                }
                Ok(false) => {
                    tracing::warn!(key, tries, "timer lease lost while its handler ran");
                    return;
                }
                Err(error) => {
                    tracing::warn!(key, %error, "timer settle failed");
                    clock::sleep(wait).await;
                }
            }
        }
        tracing::error!(key, tries, "timer settle failed, timer is retried");
    }
}
