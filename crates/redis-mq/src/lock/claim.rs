//! One attempt at a lock: the three scripts.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{RedisResult, Script};
use redis_link::Link;

use super::lease::{Lease, Moment};
use crate::{Error, clock};

/// How long the last token of a lock is remembered. Not for ever, as there may be a lock per order; and it need not be: tokens are times.
const TOKEN_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How often, and how long apart, a lock is given back that nobody may have got.
const GIVE_BACK_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(1)];

/// A lock's name, its lease, and whoever asks for it.
#[derive(Clone)]
pub(super) struct Claim {
    link: Link,
    name: Arc<str>,
    span: Duration,
    /// Nobody else's, and of this attempt alone.
    owner: String,
}

/// What became of an attempt.
pub(super) enum Attempt {
    /// This is the token.
    Got(u64, Lease),
    /// Another has it, for so long at most.
    Held(Duration),
}

impl Claim {
    pub(super) fn new(link: Link, name: Arc<str>, span: Duration) -> Self {
        Self { link, name, span, owner: format!("{:016x}{:016x}", clock::draw(), clock::draw()) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn span(&self) -> Duration {
        self.span
    }

    /// Braces keep both keys together on a cluster.
    fn key(&self) -> String {
        format!("redis-mq:lock:{{{}}}", self.name)
    }

    fn span_ms(&self) -> u64 {
        u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX)
    }

    /// Asks for the lock.
    pub(super) async fn acquire(&self) -> Result<Attempt, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("acquire.lua")));
        let asked = Moment::now();
        let mut call = SCRIPT.key(self.key());
        call.key(format!("{}:token", self.key())).arg(&self.owner).arg(self.span_ms());
        let kept = u64::try_from(TOKEN_KEPT.as_millis()).unwrap_or(u64::MAX);
        let answer: RedisResult<(u8, i64)> = call.arg(kept).invoke_async(&mut self.link.clone()).await;
        match answer {
            Ok((1, token)) => {
                Ok(Attempt::Got(u64::try_from(token).unwrap_or_default(), Lease::new(asked, self.span)))
            }
            Ok((_, left)) => Ok(Attempt::Held(Duration::from_millis(u64::try_from(left).unwrap_or(0)))),
            Err(error) => {
                let error = Error::over(&self.link, &error);
                if error.is_maybe_done() {
                    self.give_back();
                }
                Err(error)
            }
        }
    }

    /// Begins the lease anew: how long it is now, or nothing if the lock is another's.
    pub(super) async fn renew(&self, token: u64) -> Result<Option<Lease>, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));
        let asked = Moment::now();
        let mut call = SCRIPT.key(self.key());
        call.arg(format!("{token} {}", self.owner)).arg(self.span_ms());
        let done: bool = call
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::over(&self.link, &error))?;
        Ok(done.then(|| Lease::new(asked, self.span)))
    }

    /// Gives it back; false if it was another's already.
    pub(super) async fn release(&self) -> Result<bool, Error> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));
        let mut call = SCRIPT.key(self.key());
        call.arg(&self.owner)
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::over(&self.link, &error))
    }

    /// Gives it back in the background, in case that Redis took it for ours; if even that fails, its lease ends.
    pub(super) fn give_back(&self) {
        let claim = self.clone();
        tokio::spawn(async move {
            for wait in GIVE_BACK_AFTER {
                clock::sleep(wait).await;
                match claim.release().await {
                    Ok(_) => return,
                    Err(error) => tracing::debug!(lock = claim.name(), %error, "lock release failed"),
                }
            }
        });
    }
}
