//! Keys that expire, turned into calls of a handler, by one process each.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
    time::Duration,
};

use duly_core::Verdict;
use redis::Script;
use redis_link::Link;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    Expiring, Gap, OWN, hash_tag,
    hearing::{Hear, Hearing, STALE_AFTER, Setting, Subscription},
    masters::Masters,
    outcome::{self, Ended, Handler, Retry},
};
use crate::{Error, RedisMq, clock};

/// How long it is remembered who acts on an occurrence: longer than anybody may act on what it heard.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How many occurrences of one key are remembered with their times.
const OCCURRENCES: u32 = 16;
/// How often a handler is tried with one key.
const TRIES: u32 = 5;
/// How long a try waits for the next at most: what waits is kept by this process alone.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// How many keys wait for their next try beside those that are handled.
const WAITING_MAX: usize = 10_000;
/// How long to wait before Redis is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A key that expired.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiredKey {
    /// Its whole name. What was in it nobody knows any more; [timers](super::ExpiryTimers) do.
    pub key: String,
    /// Greater than that of every earlier occurrence of this key: a fencing token.
    pub token: u64,
}

type TellGap = Arc<dyn Fn(&Gap) + Send + Sync>;

/// Listens for keys that expire, once it [starts](Self::start).
#[must_use = "a listener hears nothing until it is started"]
pub struct ExpiryListener {
    mq: RedisMq,
    prefix: String,
    handler: Handler<ExpiredKey>,
    setting: Setting,
    retry: Retry,
    gap: Option<TellGap>,
}

impl RedisMq {
    /// Calls `handler` with every key of this prefix that expires while somebody listens, in one process of the
    /// [group](crate::Settings::group). Begins with [`start`](ExpiryListener::start).
    ///
    /// What expires while nobody listens is lost, and so is what a process was at when it died: Redis keeps no events. Where that matters, set
    /// [timers](Self::expiry_timers).
    pub fn expiry_listener<H, F, V, E>(&self, prefix: impl Into<String>, handler: H) -> ExpiryListener
    where
        H: Fn(ExpiredKey) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        ExpiryListener {
            mq: self.clone(),
            prefix: prefix.into(),
            handler: outcome::handler(self.inner.identity, handler),
            setting: Setting::Ensure,
            retry: Retry::default(),
            gap: None,
        }
    }
}

impl ExpiryListener {
    /// Is told, besides the log, whenever events may have been missed: after a broken connection, a failover, a pause. What has no
    /// timer can only be looked up then, such as by `SCAN`.
    pub fn on_gap(mut self, tell: impl Fn(&Gap) + Send + Sync + 'static) -> Self {
        self.gap = Some(Arc::new(tell));
        self
    }

    /// Takes it that `notify-keyspace-events` has the flags `E` and `x` on every server, where this user may not ask.
    pub fn assume_enabled(mut self) -> Self {
        self.setting = Setting::Assume;
        self
    }

    /// How long to wait before a handler that failed is tried again: `first`, then doubling up to `longest`. It is tried five times,
    /// by the process that began; then the key is given up, and the log says so. One second and five minutes. While it waits it takes no room
    /// of other keys; if the listener is stopped, it is not tried again. A [`Verdict`] may name a wait of its own, of an hour at most.
    pub fn retry(mut self, first: Duration, longest: Duration) -> Self {
        self.retry = Retry { first, longest };
        self
    }

    /// Turns the events on where they are off, subscribes on every server, and begins. What expires from here on is heard; or it is
    /// an error, such as [`Refused`](Error::Refused) if the events are off and this user may not turn them on.
    ///
    /// Cancel safety: dropped midway, nothing listens; the events may have been turned on.
    pub async fn start(self) -> Result<Expiring, Error> {
        let Self { mq, prefix, handler, setting, retry, gap } = self;
        mq.check_open()?;
        let inner = &*mq.inner;
        let (expiring, told) = Expiring::new();
        if !inner.settings.enabled {
            tracing::info!(prefix, "listener disabled in this process");
            return Ok(expiring);
        }
        let room = Arc::new(Semaphore::new(inner.settings.concurrency));
        let hearer = Arc::new(Hearer {
            link: inner.link.clone(),
            group: inner.settings.group.clone(),
            prefix,
            handler,
            limit: inner.settings.processing_timeout,
            retry,
            room: room.clone(),
            seats: Arc::new(Semaphore::new(WAITING_MAX)),
            stop: told.stop.clone(),
            gap,
        });
        let masters =
            Masters::new(&inner.address, &inner.link).map_err(|error| Error::unconnected(&error))?;
        let mut hearing = Hearing::new(masters, setting, hearer);
        hearing.begin().await?;
        inner.expiring.add(&expiring);
        let all = u32::try_from(inner.settings.concurrency).unwrap_or(u32::MAX);
        let (stop, ended) = (told.stop, told.ended);
        tokio::spawn(async move {
            hearing.run(stop).await;
            // All the room there is again: nobody is at work any more.
            let _ = room.acquire_many(all).await;
            drop(ended);
        });
        // Shut down meanwhile, or it would be left out.
        if mq.check_open().is_err() {
            expiring.tell();
        }
        Ok(expiring)
    }
}

/// What is done with a key that was heard of.
struct Hearer {
    link: Link,
    group: String,
    prefix: String,
    handler: Handler<ExpiredKey>,
    limit: Duration,
    retry: Retry,
    room: Arc<Semaphore>,
    /// Of those that wait for their next try.
    seats: Arc<Semaphore>,
    /// It is time to stop.
    stop: watch::Receiver<bool>,
    gap: Option<TellGap>,
}

impl Hear for Hearer {
    async fn heard(&self, key: &[u8], subscription: &Subscription) -> Result<(), String> {
        if !key.starts_with(self.prefix.as_bytes()) || key.starts_with(OWN.as_bytes()) {
            return Ok(());
        }
        let Ok(key) = str::from_utf8(key) else {
            tracing::error!(?key, "expired key is not UTF-8, skipped");
            return Ok(());
        };
        // Room first: what this process has no time for, another may have.
        let in_time = async {
            let room = self.room.clone().acquire_owned().await.map_err(|_| "it ends")?;
            Ok::<_, String>((room, self.claim(key, subscription).await))
        };
        let (room, token) = tokio::time::timeout(STALE_AFTER, in_time)
            .await
            .map_err(|_| format!("what was heard could not be acted on within {STALE_AFTER:?}"))??;
        if let Some(token) = token {
            self.begin(ExpiredKey { key: key.to_owned(), token }, room);
        }
        Ok(())
    }

    fn missed(&self, gap: Gap) {
        let Gap { server, why } = &gap;
        tracing::warn!(server, prefix = self.prefix, why, "expiry events may be missed");
        // A panic of whoever is told must not end the subscription.
        if let Some(tell) = &self.gap
            && catch_unwind(AssertUnwindSafe(|| tell(&gap))).is_err()
        {
            tracing::error!(server, prefix = self.prefix, "gap callback panicked");
        }
    }
}

impl Hearer {
    /// The token to act with, unless another acts. Asks until there is an answer: asked twice, it is the same.
    async fn claim(&self, key: &str, subscription: &Subscription) -> Option<u64> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("heard.lua")));
        // In the slot of the key: the server that told of it has the clock that the subscription began by.
        let record = format!("{OWN}expiry:{{{}}}:{}:{key}", hash_tag(key).unwrap_or(key), self.group);
        let mut call = SCRIPT.key(record);
        call.arg(format!("{:016x}", subscription.id)).arg(subscription.began_us).arg(subscription.number);
        call.arg(u64::try_from(REMEMBERED.as_millis()).unwrap_or(u64::MAX)).arg(OCCURRENCES);
        loop {
            match call.invoke_async::<u64>(&mut self.link.clone()).await {
                Ok(token) => return Some(token).filter(|token| *token > 0),
                Err(error) => {
                    tracing::warn!(key, %error, "lock of expired key failed");
                    clock::sleep(ASK_AGAIN_AFTER).await;
                }
            }
        }
    }

    fn begin(&self, expired: ExpiredKey, room: OwnedSemaphorePermit) {
        let (handler, limit, retry) = (self.handler.clone(), self.limit, self.retry);
        let (all_room, seats, mut stop) = (self.room.clone(), self.seats.clone(), self.stop.clone());
        tokio::spawn(async move {
            let key = expired.key.clone();
            let mut room = room;
            for tries in 1..=TRIES {
                let after = match outcome::run(handler(expired.clone()), limit).await {
                    Ended::Done => return,
                    Ended::Again(after, why) if tries < TRIES => {
                        tracing::error!(key, tries, why, "expired key handler failed, retry scheduled");
                        after.unwrap_or_else(|| retry.after(tries)).min(WAIT_MAX)
                    }
                    Ended::Again(_, why) | Ended::GivenUp(why) => {
                        tracing::error!(key, tries, why, "expired key given up");
                        return;
                    }
                };
                // Others are handled while it waits, unless too many wait.
                let seat = seats.clone().try_acquire_owned().ok();
                let held = match &seat {
                    Some(_) => {
                        drop(room);
                        None
                    }
                    None => Some(room),
                };
                let waited = async {
                    clock::sleep(after).await;
                    match held {
                        Some(room) => Some(room),
                        None => all_room.clone().acquire_owned().await.ok(),
                    }
                };
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => {
                        tracing::error!(key, tries, "listener stopped, expired key not tried again");
                        return;
                    }
                    waited = waited => match waited {
                        Some(next) => room = next,
                        None => return,
                    },
                }
            }
        });
    }
}
