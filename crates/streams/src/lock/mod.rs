//! Distributed locks: one holder at a time over all processes, a lease, and a fencing token that reveals a holder which
//! has lost the lock.
//!
//! ```no_run
//! use duly_streams::Streams;
//! use std::time::Duration;
//!
//! # async fn report(token: u64) {}
//! # async fn run(streams: Streams) -> Result<(), duly_streams::Error> {
//! let lock = streams.lock("nightly-report").lease(Duration::from_secs(10));
//!
//! // Skips if another is at it.
//! if let Some(guard) = lock.try_lock().await? {
//!     tokio::select! {
//!         () = report(guard.token()) => {}
//!         () = guard.lost() => eprintln!("somebody else may be at it by now: stopped"),
//!     }
//!     guard.release().await?;
//! }
//!
//! // Waits, half a minute at most.
//! if let Some(guard) = lock.lock(Duration::from_secs(30)).await? {
//!     report(guard.token()).await;
//! } // dropped: released in the background
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **One holder.** A lock is granted when nobody holds it, for a [lease](Lock::lease), and renewed while the guard
//!   exists. After a holder dies, others wait for the rest of its lease.
//! - **A holder notices the loss in time.** It counts its lease from before the request and ends it a little early, so
//!   that [`is_held`](LockGuard::is_held) turns false and [`lost`](LockGuard::lost) returns before Redis grants the
//!   lock to another holder: also if Redis is unreachable, and right after a pause of the process.
//! - **Only the holder releases it.** A release after a loss changes nothing for the new holder, and [says
//!   so](Released::Lost).
//! - **Tokens only grow**, per lock. They make it safe: between a check of `is_held` and a write to a file, a process
//!   may be paused for a minute. Let the owner of the file remember the greatest token and refuse smaller ones.
//! - **Not reentrant.** A process that asks for a lock which it holds already waits like any other.
//! - **No queue.** Of those who wait, any may be next. They ask with growing waits, at most half a second apart.
//!
//! # Its limits
//!
//! Redis replicates after it has answered. If a master dies and a replica takes its place that had not received the lock yet, the lock is
//! free there, while its holder holds it until its next renewal fails: **two hold it for a part of the lease.** No lock on one Redis can do
//! better. The token tells them apart, with this much certainty: tokens are the server's time in microseconds, or one more than the last,
//! whichever is greater. So they grow over a failover, too, although the last one was forgotten, **unless the new master's clock is behind the
//! old one's** by more than the time that went by in between. Keep the clocks of your Redis servers together. The same goes for
//! `FLUSHALL` with a clock that was set back.
//!
//! If the clock of the Redis server is set forward, leases end early by as much, and holders do not notice: only the
//! token protects. If you need more, use a system with consensus, such as etcd, or a database.

mod claim;
mod guard;
pub(crate) mod lease;

use std::{sync::Arc, time::Duration};

use redis_link::Link;

use self::{
    claim::{LockAttempt, LockClaim},
    guard::LockGuard as Guard,
};
use crate::{Error, Streams, clock, settings::check_event};

pub use guard::{LockGuard, Released};

/// The default lease.
const LEASE: Duration = Duration::from_secs(10);
/// The shortest and the longest lease.
const LEASE_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));

/// Waits between two attempts: the first and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A lock by its name. Creating it calls nothing; [`try_lock`](Self::try_lock) and [`lock`](Self::lock) do.
#[derive(Clone)]
pub struct Lock {
    streams: Streams,
    name: Arc<str>,
    span: Duration,
}

impl Streams {
    /// A lock that is shared by all processes which use this Redis and this name. A held lock outlives
    /// [`shutdown`](Self::shutdown), until its guard is dropped.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock { streams: self.clone(), name: name.into().into(), span: LEASE }
    }
}

impl Lock {
    /// Sets the lease: how long a dead holder keeps the lock, and how long a holder that cannot reach Redis still holds
    /// it. It is renewed after a third of it. 100 ms to a day; 10 s by default.
    #[must_use]
    pub fn lease(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Acquires the lock without waiting. `None`: another holder has it.
    ///
    /// After [`Unanswered`](Error::Unanswered) it is released in the background, in case it was acquired.
    ///
    /// Cancel safety: dropped midway, the lock may have been acquired; nobody renews it, so it is free when its lease
    /// ends.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>, Error> {
        match self.attempt().await? {
            Ok(guard) => Ok(Some(guard)),
            Err(_) => Ok(None),
        }
    }

    /// Acquires the lock, waiting at most `within`. `None`: other holders had it all the time. An unreachable Redis is
    /// tried again within that time.
    ///
    /// Cancel safety: dropped midway, the lock may have been acquired; nobody renews it, so it is free when its lease
    /// ends.
    pub async fn lock(&self, within: Duration) -> Result<Option<LockGuard>, Error> {
        let begun = clock::instant();
        let mut wait = WAIT.0;
        loop {
            let attempt = self.attempt().await;
            let left = within.saturating_sub(clock::instant().saturating_duration_since(begun));
            let held = match attempt {
                Ok(Ok(guard)) => return Ok(Some(guard)),
                Ok(Err(_)) if left.is_zero() => return Ok(None),
                Ok(Err(held)) => held,
                Err(Error::Unreachable { .. } | Error::Unanswered { .. }) if !left.is_zero() => WAIT.1,
                Err(error) => return Err(error),
            };
            // With jitter; and no later than the end of the current lease.
            let drawn = wait / 2 + wait.mul_f64((clock::random_u64() % 512) as f64 / 1024.0);
            clock::sleep(drawn.min(held.max(WAIT.0)).min(left)).await;
            wait = (wait * 2).min(WAIT.1);
        }
    }

    /// The guard, or how long another holder may have the lock.
    async fn attempt(&self) -> Result<Result<LockGuard, Duration>, Error> {
        self.streams.check_open()?;
        self.check()?;
        let claim = LockClaim::new(self.link(), self.name.clone(), self.span);
        Ok(match claim.acquire().await? {
            // The reply took as long as the lease: the lock may be lost already.
            LockAttempt::Acquired(_, lease) if lease.left_now().is_zero() => {
                claim.release_in_background();
                Err(Duration::ZERO)
            }
            LockAttempt::Acquired(token, lease) => Ok(Guard::new(claim, token, lease)),
            LockAttempt::HeldByOther(left) => Err(left),
        })
    }

    fn link(&self) -> Link {
        self.streams.inner.link.clone()
    }

    fn check(&self) -> Result<(), Error> {
        check_event(&self.name).map_err(|_| {
            Error::Invalid(
                "the name of a lock has 1 to 255 bytes, no braces and no control characters".into(),
            )
        })?;
        if self.span < LEASE_RANGE.0 || self.span > LEASE_RANGE.1 {
            return Err(Error::Invalid("the lease of a lock goes from 100 milliseconds to a day".into()));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).field("lease", &self.span).finish_non_exhaustive()
    }
}
