//! Delayed events: Duly keeps them in Redis and appends them to their streams when they are due.

use std::{
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use duly::{
    Body, Changed, Clock, ContentKind, Duly, IntoMessageId, MessageId, SinkOptions, StoreError,
    StoreErrorKind, SweepSettings, SystemClock, Timestamp,
};
use duly_sinks::{RedisStreamsConfig, SinkConfig, Span};
use duly_stores::{
    RedisStore,
    redis::{Options, is_gone},
};
use serde::Serialize;
use tokio::sync::Mutex;

use crate::{
    Error, Message, Settings, Streams, Unacknowledged, clock,
    entry::{BODY, CONTENT_TYPE},
    keys::Keys,
    settings::check_event,
    streams::Inner,
};

/// The sink of all delayed events.
const SINK: &str = "streams";

/// Shortest and longest lease of a process in the store.
const LEASE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// When an event is due: after a [`Duration`], or at a [`SystemTime`] or [`Timestamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// This long after it is accepted.
    After(Duration),
    /// At this time, by the clock of Redis.
    At(Timestamp),
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::After(delay)
    }
}

impl From<Timestamp> for When {
    fn from(at: Timestamp) -> Self {
        Self::At(at)
    }
}

impl From<SystemTime> for When {
    fn from(at: SystemTime) -> Self {
        Self::At(at.into())
    }
}

/// Waits before joining the store is tried again: doubling from the first to the longest.
const JOIN_RETRY_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The Duly of this `Streams`. It starts when it can: a Redis that it refuses still serves everything that is not
/// delayed.
#[derive(Default)]
pub(crate) struct Delayed {
    state: Mutex<DelayedState>,
}

#[derive(Default)]
struct DelayedState {
    /// The running Duly, with a unique number.
    running: Option<(u64, Duly)>,
    /// Another process joined with the same name. From then on this one joins under a generated name: with one name
    /// they would replace each other for ever.
    is_replaced: bool,
    /// It was shut down and does not start again.
    is_shut_down: bool,
}

impl DelayedState {
    async fn start(&mut self, settings: &Settings, name: &str) -> Result<(u64, Duly), Error> {
        if self.is_shut_down {
            return Err(Error::Closed);
        }
        let number = clock::random_u64();
        let duly = if self.is_replaced {
            start(settings, &format!("{}-{number:016x}", truncated(name))).await?
        } else {
            start(settings, name).await?
        };
        Ok(self.running.insert((number, duly)).clone())
    }
}

/// Cuts a name so that a number fits behind it.
fn truncated(name: &str) -> &str {
    const BYTES_MAX: usize = 47;
    let end =
        name.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|end| *end <= BYTES_MAX).last();
    &name[..end.unwrap_or(0)]
}

/// Why the store must be joined again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RejoinReason {
    /// Redis lost its data.
    Lost,
    /// Another process joined with its name.
    Replaced,
}

impl RejoinReason {
    /// The reason in an error of the store, if joining again helps.
    fn of(error: &StoreError, settings: &Settings) -> Option<Self> {
        if is_gone(error) {
            return settings.allow_volatile.then_some(Self::Lost);
        }
        (error.kind == StoreErrorKind::Closed).then_some(Self::Replaced)
    }
}

impl Delayed {
    /// Joins the store and starts delivering. If that fails, the calls that send delayed events return the reason.
    pub(crate) async fn begin(&self, settings: &Settings, name: &str) {
        if let Err(error) = self.get(settings, name).await {
            tracing::info!(%error, "delayed store not joined");
        }
    }

    async fn get(&self, settings: &Settings, name: &str) -> Result<(u64, Duly), Error> {
        let mut state = self.state.lock().await;
        match &state.running {
            Some(running) => Ok(running.clone()),
            None => state.start(settings, name).await,
        }
    }

    /// Replaces the Duly of this number by one that joins again, unless that was done already.
    async fn restart(
        &self,
        number: u64,
        why: RejoinReason,
        settings: &Settings,
        name: &str,
    ) -> Result<(u64, Duly), Error> {
        let mut state = self.state.lock().await;
        if state.is_shut_down {
            return Err(Error::Closed);
        }
        if let Some((running, old)) = &state.running {
            if *running != number {
                return Ok((*running, old.clone()));
            }
            match why {
                RejoinReason::Lost => {
                    tracing::error!("Redis lost its delayed events; joining an empty store (allow_volatile)")
                }
                RejoinReason::Replaced => tracing::error!(
                    consumer = name,
                    "another process joined with the same consumer name; joining again under another"
                ),
            }
            let old = old.clone();
            tokio::spawn(async move { old.shutdown().await });
            state.running = None;
            state.is_replaced |= why == RejoinReason::Replaced;
        }
        state.start(settings, name).await
    }

    /// Joins the store if that failed before, or joins again if the running Duly is of no more use: a process that only
    /// delivers makes no call that would fail.
    async fn ensure_joined(&self, settings: &Settings, name: &str) -> Result<(), Error> {
        let running = self.state.lock().await.running.clone();
        let Some((number, duly)) = running else {
            self.get(settings, name).await?;
            tracing::info!("delayed store joined");
            return Ok(());
        };
        let health = duly.health().await;
        let failing = [StoreErrorKind::Damaged, StoreErrorKind::Closed];
        let failing = failing.into_iter().find_map(|kind| health.failing_with(kind));
        if let Some(why) = failing.and_then(|error| RejoinReason::of(error, settings)) {
            self.restart(number, why, settings, name).await?;
        }
        Ok(())
    }

    async fn is_running(&self) -> bool {
        self.state.lock().await.running.is_some()
    }

    /// May be called repeatedly.
    pub(crate) async fn shutdown(&self) -> Result<(), Error> {
        let running = {
            let mut state = self.state.lock().await;
            state.is_shut_down = true;
            state.running.clone()
        };
        match running {
            Some((_, duly)) => Ok(duly.shutdown().await?),
            None => Ok(()),
        }
    }
}

/// Keeps delivery of delayed events running for as long as the [`Streams`] exists.
pub(crate) async fn watch(streams: Weak<Inner>) {
    let open = || streams.upgrade().filter(|inner| !inner.is_closed());
    let (mut wait, mut last_error) = (JOIN_RETRY_WAITS.0, String::new());
    loop {
        let Some(inner) = open() else { return };
        let is_running = inner.delayed.is_running().await;
        let pause = if is_running { inner.settings.maintenance_interval.max(LEASE.0) } else { wait };
        drop(inner);
        clock::sleep(pause).await;
        let Some(inner) = open() else { return };
        match inner.delayed.ensure_joined(&inner.settings, &inner.consumer).await {
            Ok(()) => (wait, last_error) = (JOIN_RETRY_WAITS.0, String::new()),
            Err(Error::Closed) => return,
            Err(error) => {
                wait = wait.saturating_mul(2).min(JOIN_RETRY_WAITS.1);
                // Logged once per reason: a Redis that never keeps delayed events may be intended.
                let error = error.to_string();
                if error != last_error {
                    tracing::warn!(
                        error,
                        "delayed store not joined; this process delivers no delayed events until then"
                    );
                }
                last_error = error;
            }
        }
    }
}

/// Joins the store and starts delivering.
async fn start(settings: &Settings, name: &str) -> Result<Duly, Error> {
    let url = settings.url.as_str();
    let machine = SystemClock::new().map_err(|error| duly::Error::NoThread(error.to_string()))?;
    let lease = settings.processing_timeout.clamp(LEASE.0, LEASE.1);
    let options = Options {
        prefix: settings.store.clone(),
        allow_volatile: settings.allow_volatile,
        node: name.to_owned(),
        lease,
        ..Options::new(clock::random_u64())
    };
    let (store, clock) =
        RedisStore::join(url, options, Arc::new(machine)).await.map_err(duly::Error::from)?;
    let clock: Arc<dyn Clock> = Arc::new(clock);
    // Request timeout < sink timeout < lease.
    let config = SinkConfig::RedisStreams(RedisStreamsConfig {
        url: Some(url.into()),
        // Trimming that keeps unacknowledged entries is done by listeners.
        max_len: settings.trim.max_len.filter(|_| settings.trim.unacknowledged == Unacknowledged::Drop),
        request_timeout: Some(Span(lease * 7 / 10)),
        ..RedisStreamsConfig::default()
    });
    let sink = config.build(clock.clone()).map_err(duly::Error::from)?;
    let options = SinkOptions { batch: config.batch(), timeout: lease * 8 / 10, ..SinkOptions::default() };
    let duly = Duly::builder()
        .store(Arc::new(store))
        .clock(clock)
        .lease(lease)
        .sweep(sweep_settings(settings.poll_interval, lease))
        .deliver(settings.enabled)
        .sink(SINK, sink, options)
        .start()
        .await?;
    Ok(duly)
}

/// No sweep interval exceeds the poll interval. Each sweep is also a heartbeat, so that several must fit into the
/// lease.
fn sweep_settings(interval: Duration, lease: Duration) -> SweepSettings {
    let most = interval.min(lease / 5);
    let usual = SweepSettings::default();
    SweepSettings {
        initial: usual.initial.min(most),
        min: usual.min.min(most),
        max: usual.max.min(most),
        idle_max: most,
    }
}

/// The content kind of a message. A content type that would be changed on the way is refused.
fn content_kind(content_type: Option<&[u8]>, body: &[u8]) -> Result<ContentKind, Error> {
    let is_text = std::str::from_utf8(body).is_ok();
    let Some(content_type) = content_type else {
        return Ok(if is_text { ContentKind::Text } else { ContentKind::Bytes });
    };
    let known = [ContentKind::Json, ContentKind::Text, ContentKind::Bytes];
    let kind = known.into_iter().find(|kind| kind.mime().as_bytes() == content_type);
    kind.filter(|kind| is_text || *kind == ContentKind::Bytes).ok_or_else(|| {
        Error::Invalid(format!(
            "a message for later has the content type {:?}, {:?} (both of UTF-8) or {:?}, or none; not {:?}: carry that in a field of another name",
            ContentKind::Json.mime(),
            ContentKind::Text.mime(),
            ContentKind::Bytes.mime(),
            String::from_utf8_lossy(content_type)
        ))
    })
}

impl Streams {
    /// Sends a value later: it is kept in Redis and appended to the stream of the event when it is due, after a
    /// [`Duration`] or at a [`SystemTime`]. Never early, and once, whichever process dies meanwhile. Returns the id to
    /// [cancel](Self::cancel) it by.
    ///
    /// If Redis does not answer, the error is [`Unanswered`](Error::Unanswered): it may have been accepted.
    /// Cancel safety: dropped midway, it may have been accepted, too. To repeat a send safely, use
    /// [`delay_send_message`](Self::delay_send_message) with a [`Message`] that has an [id](Message::id).
    pub async fn delay_send<T: Serialize + ?Sized>(
        &self,
        event: &str,
        value: &T,
        when: impl Into<When>,
    ) -> Result<MessageId, Error> {
        self.delay_send_message(event, &Message::json(value)?, when).await
    }

    /// Sends a [`Message`] later, with its properties, priority and [id](Message::id). A second send with the same id
    /// and content changes nothing; the first due time stays. Other content under a known id is refused.
    ///
    /// It must have a body, as [`Message::json`] makes one, and its other fields must be text. Its content type, if it
    /// has one, is `application/json`, `text/plain; charset=utf-8` or `application/octet-stream`.
    ///
    /// Cancel safety: dropped midway, it may have been accepted or not; send it again with the same [id](Message::id),
    /// which changes nothing if it was.
    pub async fn delay_send_message(
        &self,
        event: &str,
        message: &Message,
        when: impl Into<When>,
    ) -> Result<MessageId, Error> {
        self.check_open()?;
        check_event(event)?;
        let message = self.to_delayed(event, message, when.into())?;
        let inner = &self.inner;
        let (number, duly) = inner.delayed.get(&inner.settings, &inner.consumer).await?;
        let error = match duly.send(message.clone()).await {
            Ok(accepted) => return Ok(accepted.id),
            Err(error) => error,
        };
        let why = match &error {
            // A store that is lost or closed accepted nothing.
            duly::Error::Store(error) if !error.is_maybe_done() => RejoinReason::of(error, &inner.settings),
            _ => None,
        };
        let Some(why) = why else { return Err(error.into()) };
        let (_, duly) = inner.delayed.restart(number, why, &inner.settings, &inner.consumer).await?;
        Ok(duly.send(message).await?.id)
    }

    fn to_delayed(&self, event: &str, message: &Message, when: When) -> Result<duly::Message, Error> {
        let stream = Keys::new(event, &self.inner.address).stream(message.priority);
        let mut delayed = duly::Message::to_sink(SINK, &stream);
        let field =
            |name: &str| message.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let Some(body) = field(BODY).cloned() else {
            return Err(Error::Invalid(
                "a message for later has a field \"body\"; Message::json makes one".into(),
            ));
        };
        let kind = content_kind(field(CONTENT_TYPE).map(Vec::as_slice), &body)?;
        delayed = delayed.body(Body::from_parts(kind, body));
        for (name, value) in message.fields.iter().filter(|(name, _)| name != BODY && name != CONTENT_TYPE) {
            let value = std::str::from_utf8(value).map_err(|_| {
                Error::Invalid(format!("the field {name:?} is not text: it cannot be sent for later"))
            })?;
            delayed = delayed.property(name, value);
        }
        if let Some(id) = &message.id {
            delayed = delayed.id(id);
        }
        Ok(match when {
            When::After(delay) => delayed.after(delay),
            When::At(at) => delayed.at(at),
        })
    }

    /// Cancels a delayed event: done, too late (with the state), or unknown. The id is text or what
    /// [`delay_send`](Self::delay_send) returned.
    ///
    /// Cancel safety: dropped midway, it may have been cancelled or not; call it again: [`Changed::TooLate`] with
    /// [`State::Cancelled`](crate::State::Cancelled) if it was.
    pub async fn cancel(&self, id: impl IntoMessageId) -> Result<Changed, Error> {
        self.check_open()?;
        let inner = &self.inner;
        let (_, duly) = inner.delayed.get(&inner.settings, &inner.consumer).await?;
        Ok(duly.cancel(id).await?)
    }
}
