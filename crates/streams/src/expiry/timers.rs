//! Timers: keys that expire, with a shadow that stays until a handler has succeeded.

use std::{fmt::Display, marker::PhantomData, sync::Arc, time::Duration};

use duly_core::Verdict;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Notify;

use super::{
    EventGap, ExpiryHandle,
    masters::Masters,
    outcome::{self, Handler},
    shadow::Shadow,
    subscriber::{ExpiryEvents, NotifySetting, Subscriber, Subscription},
    worker::Worker,
};
use crate::{Error, Retry, Streams};

/// The longest time to live: ten years.
const TTL_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Attempts by default: with the default waits they take eight hours.
const ATTEMPTS_DEFAULT: u32 = 100;

/// A timer that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiredTimer<T> {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: T,
    /// When it was due: milliseconds since 1970, by the clock of Redis.
    pub due_ms: u64,
    /// The number of this attempt, from 1. Above 1, an earlier one failed or its process died.
    pub attempt: u32,
}

/// A pending timer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer<T> {
    /// Its value.
    pub value: T,
    /// Time until it is due; zero if it is.
    pub remaining: Duration,
    /// Attempts so far. Above 0, it was due and is retried.
    pub attempts: u32,
}

/// The result of cancelling a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// It is cancelled: no handler will be called with it.
    Done {
        /// Attempts before, none of which is known to have succeeded.
        attempts: u32,
    },
    /// A handler runs for it. If that fails, the timer is retried: cancel it again then.
    TooLate,
    /// There is no such timer: never set, cancelled or done.
    Unknown,
}

/// Timers of one prefix: keys with a time to live and a value. Cloning shares it.
#[derive(Clone)]
pub struct ExpiryTimers {
    pub(super) streams: Streams,
    pub(super) shadow: Shadow,
    /// Wakes the worker: a timer may be due sooner than it knows.
    pub(super) hint: Arc<Notify>,
}

impl Streams {
    /// Timers whose keys begin with this prefix. On a Cluster the prefix has a part in braces, such as `{alarm}:`,
    /// which keeps all of them in one slot.
    pub fn expiry_timers(&self, prefix: &str) -> Result<ExpiryTimers, Error> {
        self.check_open()?;
        let shadow = Shadow::new(&self.inner.address, self.inner.link.clone(), prefix)?;
        Ok(ExpiryTimers { streams: self.clone(), shadow, hint: Arc::default() })
    }
}

impl ExpiryTimers {
    /// Sets the key to the value, as JSON, with this time to live. When it ends, a handler is called with key and
    /// value. An existing timer of the key is replaced; if a handler runs for it, a handler is called for the new one
    /// as well.
    ///
    /// One script writes key and shadow, so that no key lacks its timer. Repeating the call after
    /// [`Unanswered`](Error::Unanswered) is safe.
    ///
    /// Cancel safety: dropped midway, the timer may be set or not; set it again, which replaces it.
    pub async fn set<T: Serialize + ?Sized>(&self, key: &str, value: &T, ttl: Duration) -> Result<(), Error> {
        self.streams.check_open()?;
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(Error::Invalid(
                "the time to live of a timer goes from a millisecond to ten years".into(),
            ));
        }
        let value = serde_json::to_vec(value).map_err(Error::encode)?;
        self.shadow.set(key, &value, ttl).await?;
        self.hint.notify_one();
        Ok(())
    }

    /// Cancels the timer and deletes the key.
    ///
    /// Deleting only the key does not cancel the timer: the shadow takes it for expired.
    ///
    /// Cancel safety: dropped midway, the timer may be cancelled or not; call it again: [`Cancelled::Unknown`] if it
    /// was.
    pub async fn cancel(&self, key: &str) -> Result<Cancelled, Error> {
        self.streams.check_open()?;
        Ok(match self.shadow.cancel(key).await? {
            -1 => Cancelled::Unknown,
            attempts => {
                u32::try_from(attempts).map_or(Cancelled::TooLate, |attempts| Cancelled::Done { attempts })
            }
        })
    }

    /// The pending timer, if there is one. Unlike the key, it exists until a handler has returned `Ok` or it is given
    /// up.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Timer<T>>, Error> {
        self.streams.check_open()?;
        let Some((value, attempts, remaining)) = self.shadow.get(key).await? else { return Ok(None) };
        let value = serde_json::from_slice(&value)
            .map_err(|why| Error::Invalid(format!("the timer {key:?} holds another type: {why}")))?;
        Ok(Some(Timer { value, remaining: Duration::from_millis(remaining), attempts }))
    }

    /// Builds a listener that calls `handler` with every due timer of this prefix, in one of the processes that listen;
    /// also with those that became due while no process ran. It runs after [`start`](TimerListener::start).
    ///
    /// A timer for which the handler returns `Ok` is done. If the handler returns an error, panics, exceeds the
    /// [processing timeout](crate::Settings::processing_timeout), or its process dies, the timer is retried up to
    /// [`attempts`](TimerListener::attempts) times. The handler may return a [`Verdict`]. A value that does not decode
    /// to `T` is given up at once.
    pub fn listener<T, H, F, V, E>(&self, handler: H) -> TimerListener<T>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(ExpiredTimer<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let typed = outcome::handler(self.streams.inner.identity, handler);
        let handler: Handler<ExpiredTimer<Vec<u8>>> = Arc::new(move |raw: ExpiredTimer<Vec<u8>>| {
            let typed = typed.clone();
            Box::pin(async move {
                let ExpiredTimer { key, value, due_ms, attempt } = raw;
                // Every attempt would decode the same bytes.
                let value = match serde_json::from_slice(&value) {
                    Ok(value) => value,
                    Err(why) => return Ok(Verdict::give_up(format!("it holds another type: {why}"))),
                };
                typed(ExpiredTimer { key, value, due_ms, attempt }).await
            })
        });
        let timers = self.clone();
        TimerListener { timers, handler, retry: outcome::default_retry(ATTEMPTS_DEFAULT), of: PhantomData }
    }
}

impl std::fmt::Debug for ExpiryTimers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExpiryTimers").field("prefix", &self.shadow.prefix()).finish_non_exhaustive()
    }
}

/// A listener of due timers before it is [started](Self::start).
#[must_use = "no timer is handled until it is started"]
pub struct TimerListener<T> {
    timers: ExpiryTimers,
    handler: Handler<ExpiredTimer<Vec<u8>>>,
    retry: Retry,
    of: PhantomData<fn(T)>,
}

impl<T> TimerListener<T> {
    /// Sets the waits between attempts and their number: a [`Retry`], or the [`RetryPolicy`](crate::RetryPolicy) that
    /// handlers of `duly` take. Default: 1 s, doubling up to 5 min, 100 [attempts](Self::attempts). A process that dies
    /// with a timer counts as one attempt; [`crashes`](Retry::crashes) is ignored.
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.retry = retry.into();
        self
    }

    /// Sets the number of attempts, including those whose process died; 100 by default, 0 for no limit. After the last
    /// one the timer is [dead](ExpiryTimers::dead) and kept with its reason, as the
    /// [settings](crate::Settings::dead_letters) say, until it is [replayed](ExpiryTimers::replay).
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.retry.attempts = attempts;
        self
    }

    /// Starts it. It keeps running while Redis is unreachable.
    ///
    /// Cancel safety: it does not wait, so that it cannot be dropped midway.
    pub async fn start(self) -> Result<ExpiryHandle, Error> {
        let Self { timers: ExpiryTimers { streams, shadow, hint }, handler, retry, .. } = self;
        streams.check_open()?;
        retry.check()?;
        let inner = &*streams.inner;
        let (handle, signal) = ExpiryHandle::new();
        if !inner.settings.enabled {
            tracing::info!(prefix = shadow.prefix(), "timers disabled in this process");
            return Ok(handle);
        }
        inner.expiry_handles.add(&handle);
        let masters = Masters::new(&inner.address, &inner.link).map_err(|error| Error::on_connect(&error))?;
        // Events only make the worker claim sooner: it works without them.
        let hints = Arc::new(Hints { prefix: shadow.prefix().to_owned(), hint: hint.clone() });
        let subscriber =
            tokio::spawn(Subscriber::new(masters, NotifySetting::Assume, hints).run(signal.stop.clone()));
        let worker = Worker::new(shadow, handler, retry, &inner.settings, hint);
        tokio::spawn(async move {
            worker.run(signal.stop).await;
            let _ = subscriber.await;
            drop(signal.ended);
        });
        // A shutdown since the check at the start did not see this listener.
        if streams.check_open().is_err() {
            handle.request_stop();
        }
        Ok(handle)
    }
}

/// Expiry events as hints for the worker.
struct Hints {
    prefix: String,
    hint: Arc<Notify>,
}

impl ExpiryEvents for Hints {
    async fn on_expired(&self, key: &[u8], _: &Subscription) -> Result<(), String> {
        if key.starts_with(self.prefix.as_bytes()) {
            self.hint.notify_one();
        }
        Ok(())
    }

    fn on_gap(&self, _: EventGap) {
        self.hint.notify_one();
    }
}
