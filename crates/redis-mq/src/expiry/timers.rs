//! Keys that expire, with a shadow that outlives them until it is done.

use std::{fmt::Display, marker::PhantomData, sync::Arc, time::Duration};

use duly_core::Verdict;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Notify;

use super::{
    Expiring, Gap,
    hearing::{Hear, Hearing, Setting, Subscription},
    masters::Masters,
    outcome::{self, Handler, Retry},
    shadow::Shadow,
    working::Worker,
};
use crate::{Error, RedisMq};

/// The longest that a timer waits: ten years.
const TTL_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// How often a timer is tried unless said otherwise: with the usual waits for eight hours, longer than a night in which somebody sleeps.
const ATTEMPTS: u32 = 100;

/// A timer whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The whole name of the key.
    pub key: String,
    /// What it was set to.
    pub value: T,
    /// When it was due: milliseconds since 1970, by the clock of Redis.
    pub due_ms: u64,
    /// Which try this is, from 1. More than 1: an earlier one failed, or its process died.
    pub tries: u32,
}

/// A timer that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer<T> {
    /// What it was set to.
    pub value: T,
    /// How long until it is due; zero if it is.
    pub left: Duration,
    /// How often it was tried. Not 0: it was due, and is tried again.
    pub tries: u32,
}

/// What became of a timer that was to be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It is gone, and no handler will be called with it.
    Done {
        /// How often a handler had been called with it before, in vain as far as anybody knows.
        tries: u32,
    },
    /// A handler is at work on it. If it fails it is tried again: cancel again then, or let the handler look.
    TooLate,
    /// There is none: never set, cancelled, or done.
    Unknown,
}

/// Keys with a time to live and a value, of one prefix. Cloning shares it.
#[derive(Clone)]
pub struct ExpiryTimers {
    pub(super) mq: RedisMq,
    pub(super) shadow: Shadow,
    /// Something is due sooner than this process may know.
    pub(super) hint: Arc<Notify>,
}

impl RedisMq {
    /// Timers whose keys begin with this prefix. On a cluster it has a part in braces, as in `{alarm}:`, which keeps all of them in one slot.
    pub fn expiry_timers(&self, prefix: &str) -> Result<ExpiryTimers, Error> {
        let shadow = Shadow::new(&self.inner.address, self.inner.link.clone(), prefix)?;
        Ok(ExpiryTimers { mq: self.clone(), shadow, hint: Arc::default() })
    }
}

impl ExpiryTimers {
    /// Sets the key to the value, as JSON, with this time to live, and with it that a handler is called with both when it is over. A
    /// timer of that key which is there is replaced; if a handler is at work on it, it is called again for the new one.
    ///
    /// One script writes both: there is never a key without its timer. Setting it again after
    /// [`Unanswered`](Error::Unanswered) does no harm.
    ///
    /// Cancel safety: dropped midway, the timer may be set or not; set it again, which replaces it.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T, ttl: Duration) -> Result<(), Error> {
        self.mq.check_open()?;
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(Error::Invalid(
                "the time to live of a timer goes from a millisecond to ten years".into(),
            ));
        }
        let value = serde_json::to_vec(value).map_err(Error::unwritable)?;
        self.shadow.set(key, &value, ttl).await?;
        self.hint.notify_one();
        Ok(())
    }

    /// Takes the timer back, and deletes the key.
    ///
    /// Deleting the key by hand does not do that: to Redis it looks as if it had expired.
    ///
    /// Cancel safety: dropped midway, the timer may be taken back or not; call it again: [`Cancelled::Unknown`] if it was.
    pub async fn cancel(&self, key: &str) -> Result<Cancelled, Error> {
        self.mq.check_open()?;
        Ok(match self.shadow.cancel(key).await? {
            -1 => Cancelled::Unknown,
            tries => u32::try_from(tries).map_or(Cancelled::TooLate, |tries| Cancelled::Done { tries }),
        })
    }

    /// The timer, if there is one that is not done. Unlike the key, it is there until a handler has answered `Ok`, or it
    /// is given up.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Timer<T>>, Error> {
        self.mq.check_open()?;
        let Some((value, tries, left)) = self.shadow.get(key).await? else { return Ok(None) };
        let value = serde_json::from_slice(&value)
            .map_err(|why| Error::Invalid(format!("the timer {key:?} holds another type: {why}")))?;
        Ok(Some(Timer { value, left: Duration::from_millis(left), tries }))
    }

    /// Calls `handler` with every timer of this prefix once it is due, in one of the processes that do so; also with those that became
    /// due while there was none. Begins with [`start`](TimerListener::start).
    ///
    /// What it answers with `Ok` is done. If it answers with an error, panics, takes longer than the
    /// [processing timeout](crate::Settings::processing_timeout), or its process dies, it is called again, until it succeeds or has been
    /// called [often enough](TimerListener::attempts). It may also answer with a [`Verdict`]. A value that is no `T` is
    /// given up at once.
    pub fn listener<T, H, F, V, E>(&self, handler: H) -> TimerListener<T>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Expired<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let typed = outcome::handler(self.mq.inner.identity, handler);
        let handler: Handler<Expired<Vec<u8>>> = Arc::new(move |raw: Expired<Vec<u8>>| {
            let typed = typed.clone();
            Box::pin(async move {
                let Expired { key, value, due_ms, tries } = raw;
                // No try could change it.
                let value = match serde_json::from_slice(&value) {
                    Ok(value) => value,
                    Err(why) => return Ok(Verdict::give_up(format!("it holds another type: {why}"))),
                };
                typed(Expired { key, value, due_ms, tries }).await
            })
        });
        let timers = self.clone();
        TimerListener { timers, handler, retry: Retry::default(), attempts: ATTEMPTS, of: PhantomData }
    }
}

impl std::fmt::Debug for ExpiryTimers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExpiryTimers").field("prefix", &self.shadow.prefix()).finish_non_exhaustive()
    }
}

/// Works on timers that are due, once it [starts](Self::start).
#[must_use = "nobody works on timers until it is started"]
pub struct TimerListener<T> {
    timers: ExpiryTimers,
    handler: Handler<Expired<Vec<u8>>>,
    retry: Retry,
    attempts: u32,
    of: PhantomData<fn(T)>,
}

impl<T> TimerListener<T> {
    /// How long to wait before a timer whose handler failed is tried again: `first`, then doubling up to `longest`. One second
    /// and five minutes.
    pub fn retry(mut self, first: Duration, longest: Duration) -> Self {
        self.retry = Retry { first, longest };
        self
    }

    /// How often a timer is tried in all, also when the process dies with it. Then it is given up: it is among the
    /// [dead](ExpiryTimers::dead) ones with the reason, as the [settings](crate::Settings::dead_letters) say, until somebody
    /// [replays](ExpiryTimers::replay) it. 0: it is tried for ever. 100, which with the usual waits takes eight hours.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Begins. From here on it goes on by itself, also if Redis is away for a while.
    ///
    /// Cancel safety: there is nothing to drop midway, it does not wait.
    pub async fn start(self) -> Result<Expiring, Error> {
        let Self { timers: ExpiryTimers { mq, shadow, hint }, handler, retry, attempts, .. } = self;
        mq.check_open()?;
        let inner = &*mq.inner;
        let (expiring, told) = Expiring::new();
        if !inner.settings.enabled {
            tracing::info!(prefix = shadow.prefix(), "timers disabled in this process");
            return Ok(expiring);
        }
        inner.expiring.add(&expiring);
        let masters =
            Masters::new(&inner.address, &inner.link).map_err(|error| Error::unconnected(&error))?;
        // Whether they come or not: then it is a little later at worst.
        let hints = Arc::new(Hints { prefix: shadow.prefix().to_owned(), hint: hint.clone() });
        let hearing = tokio::spawn(Hearing::new(masters, Setting::Assume, hints).run(told.stop.clone()));
        let worker = Worker::new(shadow, handler, (retry, attempts), &inner.settings, hint);
        tokio::spawn(async move {
            worker.run(told.stop).await;
            let _ = hearing.await;
            drop(told.ended);
        });
        // Shut down meanwhile, or it would be left out.
        if mq.check_open().is_err() {
            expiring.tell();
        }
        Ok(expiring)
    }
}

/// Events of Redis as what they are good for: a reason to look.
struct Hints {
    prefix: String,
    hint: Arc<Notify>,
}

impl Hear for Hints {
    async fn heard(&self, key: &[u8], _: &Subscription) -> Result<(), String> {
        if key.starts_with(self.prefix.as_bytes()) {
            self.hint.notify_one();
        }
        Ok(())
    }

    fn missed(&self, _: Gap) {
        self.hint.notify_one();
    }
}
