//! A claim of a lock, and its three scripts.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{RedisResult, Script};
use redis_link::Link;

use super::lease::{Lease, Moment};
use crate::{Error, clock};

/// How long the last token of a lock is remembered. That may be finite because tokens are times.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits before the tries to release a lock that may have been acquired.
const RELEASE_WAITS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(1)];

/// The claim of one caller to a lock.
#[derive(Clone)]
pub(super) struct LockClaim {
    link: Link,
    name: Arc<str>,
    span: Duration,
    /// Unique per attempt.
    owner: String,
}

/// The result of an attempt to acquire the lock.
pub(super) enum LockAttempt {
    /// Acquired, with this token.
    Acquired(u64, Lease),
    /// Another holder has it, at most for this time.
    HeldByOther(Duration),
}

impl LockClaim {
    pub(super) fn new(link: Link, name: Arc<str>, span: Duration) -> Self {
        Self { link, name, span, owner: format!("{:016x}{:016x}", clock::random_u64(), clock::random_u64()) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn span(&self) -> Duration {
        self.span
    }

    /// Braces keep both keys in one slot.
    fn key(&self) -> String {
        format!("duly-streams:lock:{{{}}}", self.name)
    }

    fn span_ms(&self) -> u64 {
        u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX)
    }

    /// Tries to acquire the lock.
    pub(super) async fn acquire(&self) -> Result<LockAttempt, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("acquire.lua")));
        let asked = Moment::now();
        let mut call = SCRIPT.key(self.key());
        call.key(format!("{}:token", self.key())).arg(&self.owner).arg(self.span_ms());
        let kept = u64::try_from(TOKEN_TTL.as_millis()).unwrap_or(u64::MAX);
        let answer: RedisResult<(u8, i64)> = call.arg(kept).invoke_async(&mut self.link.clone()).await;
        match answer {
            Ok((1, token)) => Ok(LockAttempt::Acquired(
                u64::try_from(token).unwrap_or_default(),
                Lease::new(asked, self.span),
            )),
            Ok((_, left)) => {
                Ok(LockAttempt::HeldByOther(Duration::from_millis(u64::try_from(left).unwrap_or(0))))
            }
            Err(error) => {
                let error = Error::from_link(&self.link, &error);
                if error.is_maybe_done() {
                    self.release_in_background();
                }
                Err(error)
            }
        }
    }

    /// Renews the lease. `None`: another holder has the lock.
    pub(super) async fn renew(&self, token: u64) -> Result<Option<Lease>, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));
        let asked = Moment::now();
        let mut call = SCRIPT.key(self.key());
        call.arg(format!("{token} {}", self.owner)).arg(self.span_ms());
        let done: bool = call
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.link, &error))?;
        Ok(done.then(|| Lease::new(asked, self.span)))
    }

    /// Releases the lock. Returns false if another holder has it.
    pub(super) async fn release(&self) -> Result<bool, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));
        let mut call = SCRIPT.key(self.key());
        call.arg(&self.owner)
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Releases the lock in the background, in case Redis granted it. If that fails, the lease ends.
    pub(super) fn release_in_background(&self) {
        let claim = self.clone();
        tokio::spawn(async move {
            for wait in RELEASE_WAITS {
                clock::sleep(wait).await;
                match claim.release().await {
                    Ok(_) => return,
                    Err(error) => tracing::debug!(lock = claim.name(), %error, "lock release failed"),
                }
            }
        });
    }
}
