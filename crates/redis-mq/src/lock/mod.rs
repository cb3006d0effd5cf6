//! Locks: one holder at a time over all processes, for as long as it is there, and a token that unmasks whoever only believes to hold it.
//!
//! ```no_run
//! use redis_mq::RedisMq;
//! use std::time::Duration;
//!
//! # async fn report(token: u64) {}
//! # async fn run(mq: RedisMq) -> Result<(), redis_mq::Error> {
//! let lock = mq.lock("nightly-report").lease(Duration::from_secs(10));
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
//! } // dropped: given back in the background
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - **One holder.** A lock is got when nobody has it, for a [lease](Lock::lease), and renewed as long as the guard lives. Whoever dies with it
//!   keeps others waiting for the rest of the lease, and no longer.
//! - **A holder knows when it no longer knows.** It counts its lease from before it asked, ends it a little early, and
//!   [`is_held`](LockGuard::is_held) is false and [`lost`](LockGuard::lost) returns before Redis gives the lock to another: also if Redis
//!   cannot be reached, and right after a pause of the whole process.
//! - **Only the holder gives it back.** Who lost it changes nothing for whoever has it now, and is [told](Released::Lost).
//! - **Tokens only grow**, lock by lock. They are what makes it safe: between looking at `is_held` and writing a file, a process may be paused for
//!   a minute. Let the file's owner keep the greatest token it has seen and refuse smaller ones.
//! - **Not reentrant.** Who asks for a lock that the same process holds, waits for itself like for any other.
//! - **No queue.** Of those who wait, any may be next. They ask with growing waits, at most half a second apart.
//!
//! # Its limits
//!
//! Redis replicates after it has answered. If a master dies and a replica takes its place that had not heard of the lock yet, the lock is
//! free there, while its holder holds it until its next renewal fails: **two hold it for a part of the lease.** No lock on one Redis can do
//! better. The token tells them apart, with this much certainty: tokens are the server's time in microseconds, or one more than the last,
//! whichever is greater. So they grow over a failover, too, although the last one was forgotten, **unless the new master's clock is behind the
//! old one's** by more than the time that went by in between. Keep the clocks of your Redis servers together. The same goes for
//! `FLUSHALL` with a clock that was set back.
//!
//! If the clock of the Redis server is set forward, leases end early by as much, and holders do not know: the token, again. If you need more than that,
//! you need a system that agrees before it answers, such as etcd or a database.

mod claim;
mod guard;
mod lease;

use std::{sync::Arc, time::Duration};

use redis_link::Link;

use self::{
    claim::{Attempt, Claim},
    guard::LockGuard as Guard,
};
use crate::{Error, RedisMq, clock, settings::check_event};

pub use guard::{LockGuard, Released};

/// How long a lease is unless it is said.
const LEASE: Duration = Duration::from_secs(10);
/// The shortest lease that leaves time to renew it, and the longest that is worth waiting for.
const LEASE_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));

/// Waits between two questions: the first, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A lock by its name. Making one asks nobody; [`try_lock`](Self::try_lock) and [`lock`](Self::lock) do.
#[derive(Clone)]
pub struct Lock {
    mq: RedisMq,
    name: Arc<str>,
    span: Duration,
}

impl RedisMq {
    /// A lock that all processes share which use this Redis and this name. One that is held outlives [`shutdown`](Self::shutdown), until its guard
    /// is dropped.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock { mq: self.clone(), name: name.into().into(), span: LEASE }
    }
}

impl Lock {
    /// How long the lock stays with a holder that died, and how long a holder that cannot reach Redis still holds it. It is renewed after
    /// a third of it, so a holder that is well keeps it for as long as it likes. 100 ms to a day; ten seconds.
    #[must_use]
    pub fn lease(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Takes the lock if nobody has it, and does not wait: nothing means that another has it.
    ///
    /// After [`Unanswered`](Error::Unanswered) it is given back in the background, in case that it was got.
    ///
    /// Cancel safety: dropped midway, the lock may have been taken; nobody renews it, so it is free when its lease ends.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>, Error> {
        match self.attempt().await? {
            Ok(guard) => Ok(Some(guard)),
            Err(_) => Ok(None),
        }
    }

    /// Takes the lock, and waits for it so long at most: nothing means that others had it all the time. A Redis that cannot be reached is asked
    /// again within that time.
    ///
    /// Cancel safety: dropped midway, the lock may have been taken; nobody renews it, so it is free when its lease ends.
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
            // Not all at the same time; and not before the lease ends, if that is soon.
            let drawn = wait / 2 + wait.mul_f64((clock::draw() % 512) as f64 / 1024.0);
            clock::sleep(drawn.min(held.max(WAIT.0)).min(left)).await;
            wait = (wait * 2).min(WAIT.1);
        }
    }

    /// The guard, or how long another may have it.
    async fn attempt(&self) -> Result<Result<LockGuard, Duration>, Error> {
        self.mq.check_open()?;
        self.check()?;
        let claim = Claim::new(self.link(), self.name.clone(), self.span);
        Ok(match claim.acquire().await? {
            // The answer took as long as the lease: what we were given is worth nothing.
            Attempt::Got(_, lease) if lease.left_now().is_zero() => {
                claim.give_back();
                Err(Duration::ZERO)
            }
            Attempt::Got(token, lease) => Ok(Guard::new(claim, token, lease)),
            Attempt::Held(left) => Err(left),
        })
    }

    fn link(&self) -> Link {
        self.mq.inner.link.clone()
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
