//! Listeners of expiry events: each expired key is handled by one process of the group.

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
    EventGap, ExpiryHandle, RESERVED_PREFIX, hash_tag,
    masters::Masters,
    outcome::{self, Handler, RunOutcome},
    subscriber::{ExpiryEvents, NotifySetting, STALE_AFTER, Subscriber, Subscription},
};
use crate::{Error, Retry, Streams, clock};

/// How long Redis remembers who acts on an event: longer than any process may act on it.
const CLAIM_TTL: Duration = Duration::from_secs(60);
/// Events of one key whose times are remembered.
const OCCURRENCES_MAX: u32 = 16;
/// Attempts per key by default.
const ATTEMPTS_DEFAULT: u32 = 5;
/// The longest wait between two attempts: only this process remembers the key meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Keys that may wait for a retry without holding a permit.
const WAITING_MAX: usize = 10_000;
/// The wait before a failed claim is repeated.
const CLAIM_RETRY_WAIT: Duration = Duration::from_millis(200);

/// An expired key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiredKey {
    /// The key. Redis no longer has its value; [timers](super::ExpiryTimers) keep it.
    pub key: String,
    /// A fencing token: greater than that of every earlier event of this key.
    pub token: u64,
}

type GapCallback = Arc<dyn Fn(&EventGap) + Send + Sync>;

/// A listener of expiry events before it is [started](Self::start).
#[must_use = "a listener receives nothing until it is started"]
pub struct ExpiryListener {
    streams: Streams,
    prefix: String,
    handler: Handler<ExpiredKey>,
    setting: NotifySetting,
    retry: Retry,
    gap: Option<GapCallback>,
}

impl Streams {
    /// Builds a listener that calls `handler` with every key of this prefix that expires, in one process of the
    /// [group](crate::Settings::group). It runs after [`start`](ExpiryListener::start).
    ///
    /// Redis does not keep events: those that are published while nobody is subscribed are lost, and so is the key that
    /// a process handled when it died. If that matters, use [timers](Self::expiry_timers).
    pub fn expiry_listener<H, F, V, E>(&self, prefix: impl Into<String>, handler: H) -> ExpiryListener
    where
        H: Fn(ExpiredKey) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        ExpiryListener {
            streams: self.clone(),
            prefix: prefix.into(),
            handler: outcome::handler(self.inner.identity, handler),
            setting: NotifySetting::Ensure,
            retry: outcome::default_retry(ATTEMPTS_DEFAULT),
            gap: None,
        }
    }
}

impl ExpiryListener {
    /// Sets a callback for when events may have been missed: after a broken connection, a failover or a pause. Keys
    /// without a timer can only be found by `SCAN` then.
    pub fn on_gap(mut self, callback: impl Fn(&EventGap) + Send + Sync + 'static) -> Self {
        self.gap = Some(Arc::new(callback));
        self
    }

    /// Assumes that `notify-keyspace-events` has the flags `E` and `x` on every server, for users that may not read the
    /// setting.
    pub fn assume_enabled(mut self) -> Self {
        self.setting = NotifySetting::Assume;
        self
    }

    /// Sets the waits between attempts and their number: a [`Retry`], or the [`RetryPolicy`](crate::RetryPolicy) that
    /// handlers of `duly` take. Default: 1 s, doubling up to 5 min, five attempts, all by the process that began; then it
    /// gives the key up and logs it. With 0 attempts, the key is retried while the listener runs. A waiting key holds up no
    /// other; when the listener stops, it is not retried. No wait is longer than an hour, also not one that a [`Verdict`]
    /// names. [`crashes`](Retry::crashes) is ignored: a key whose process died is lost.
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.retry = retry.into();
        self
    }

    /// Enables expiry events where they are off, subscribes on every server, and starts. Every key that expires from
    /// here on is handled. Fails with [`Refused`](Error::Refused) if the events are off and this user may not enable
    /// them.
    ///
    /// Cancel safety: dropped midway, no listener runs; the events may have been enabled.
    pub async fn start(self) -> Result<ExpiryHandle, Error> {
        let Self { streams, prefix, handler, setting, retry, gap } = self;
        streams.check_open()?;
        retry.check()?;
        let inner = &*streams.inner;
        let (handle, signal) = ExpiryHandle::new();
        if !inner.settings.enabled {
            tracing::info!(prefix, "listener disabled in this process");
            return Ok(handle);
        }
        let permits = Arc::new(Semaphore::new(inner.settings.concurrency));
        let dispatcher = Arc::new(KeyDispatcher {
            link: inner.link.clone(),
            group: inner.settings.group.clone(),
            prefix,
            handler,
            limit: inner.settings.processing_timeout,
            retry,
            permits: permits.clone(),
            wait_slots: Arc::new(Semaphore::new(WAITING_MAX)),
            stop: signal.stop.clone(),
            gap,
        });
        let masters = Masters::new(&inner.address, &inner.link).map_err(|error| Error::on_connect(&error))?;
        let mut subscriber = Subscriber::new(masters, setting, dispatcher);
        subscriber.subscribe_all().await?;
        inner.expiry_handles.add(&handle);
        let all = u32::try_from(inner.settings.concurrency).unwrap_or(u32::MAX);
        let (stop, ended) = (signal.stop, signal.ended);
        tokio::spawn(async move {
            subscriber.run(stop).await;
            // With all permits taken, no handler runs.
            let _ = permits.acquire_many(all).await;
            drop(ended);
        });
        // A shutdown since the check at the start did not see this listener.
        if streams.check_open().is_err() {
            handle.request_stop();
        }
        Ok(handle)
    }
}

/// Claims expired keys and hands them to the handler.
struct KeyDispatcher {
    link: Link,
    group: String,
    prefix: String,
    handler: Handler<ExpiredKey>,
    limit: Duration,
    retry: Retry,
    permits: Arc<Semaphore>,
    /// One permit per key that waits for a retry.
    wait_slots: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    gap: Option<GapCallback>,
}

impl ExpiryEvents for KeyDispatcher {
    async fn on_expired(&self, key: &[u8], subscription: &Subscription) -> Result<(), String> {
        if !key.starts_with(self.prefix.as_bytes()) || key.starts_with(RESERVED_PREFIX.as_bytes()) {
            return Ok(());
        }
        let Ok(key) = str::from_utf8(key) else {
            tracing::error!(?key, "expired key is not UTF-8, skipped");
            return Ok(());
        };
        // Room first: what this process has no time for, another may have.
        let in_time = async {
            let permits = self.permits.clone().acquire_owned().await.map_err(|_| "it ends")?;
            Ok::<_, String>((permits, self.claim(key, subscription).await))
        };
        let (permits, token) = tokio::time::timeout(STALE_AFTER, in_time)
            .await
            .map_err(|_| format!("an event could not be handled within {STALE_AFTER:?}"))??;
        if let Some(token) = token {
            self.spawn(ExpiredKey { key: key.to_owned(), token }, permits);
        }
        Ok(())
    }

    fn on_gap(&self, gap: EventGap) {
        let EventGap { server, why } = &gap;
        tracing::warn!(server, prefix = self.prefix, why, "expiry events may be missed");
        // A panic of the callback must not end the subscription.
        if let Some(callback) = &self.gap
            && catch_unwind(AssertUnwindSafe(|| callback(&gap))).is_err()
        {
            tracing::error!(server, prefix = self.prefix, "gap callback panicked");
        }
    }
}

impl KeyDispatcher {
    /// The token to act with, unless another acts. Asks until there is an answer: asked twice, it is the same.
    async fn claim(&self, key: &str, subscription: &Subscription) -> Option<u64> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim_event.lua")));
        // In the slot of the key: the server that published it has the clock that the subscription began by.
        let record =
            format!("{RESERVED_PREFIX}expiry:{{{}}}:{}:{key}", hash_tag(key).unwrap_or(key), self.group);
        let mut call = SCRIPT.key(record);
        call.arg(format!("{:016x}", subscription.id)).arg(subscription.began_us).arg(subscription.number);
        call.arg(u64::try_from(CLAIM_TTL.as_millis()).unwrap_or(u64::MAX)).arg(OCCURRENCES_MAX);
        loop {
            match call.invoke_async::<u64>(&mut self.link.clone()).await {
                Ok(token) => return Some(token).filter(|token| *token > 0),
                Err(error) => {
                    tracing::warn!(key, %error, "lock of expired key failed");
                    clock::sleep(CLAIM_RETRY_WAIT).await;
                }
            }
        }
    }

    fn spawn(&self, expired: ExpiredKey, permits: OwnedSemaphorePermit) {
        let (handler, limit, retry) = (self.handler.clone(), self.limit, self.retry.clone());
        let (all_permits, wait_slots, mut stop) =
            (self.permits.clone(), self.wait_slots.clone(), self.stop.clone());
        tokio::spawn(async move {
            let key = expired.key.clone();
            let mut permits = permits;
            for attempts in 1.. {
                let is_last = retry.attempts > 0 && attempts >= retry.attempts;
                let after = match outcome::run(handler(expired.clone()), limit).await {
                    RunOutcome::Done => return,
                    RunOutcome::Retry(after, why) if !is_last => {
                        tracing::error!(key, attempts, why, "expired key handler failed, retry scheduled");
                        after.unwrap_or_else(|| retry.wait(attempts)).min(WAIT_MAX)
                    }
                    RunOutcome::Retry(_, why) | RunOutcome::GivenUp(why) => {
                        tracing::error!(key, attempts, why, "expired key given up");
                        return;
                    }
                };
                // Others are handled while it waits, unless too many wait.
                let wait_slot = wait_slots.clone().try_acquire_owned().ok();
                let kept = match &wait_slot {
                    Some(_) => {
                        drop(permits);
                        None
                    }
                    None => Some(permits),
                };
                let waited = async {
                    clock::sleep(after).await;
                    match kept {
                        Some(permits) => Some(permits),
                        None => all_permits.clone().acquire_owned().await.ok(),
                    }
                };
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => {
                        tracing::error!(key, attempts, "listener stopped, expired key not tried again");
                        return;
                    }
                    waited = waited => match waited {
                        Some(next) => permits = next,
                        None => return,
                    },
                }
            }
        });
    }
}
