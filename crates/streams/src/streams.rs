//! `Streams`: connect and shut down.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use duly_core::MessageId;
use redis_link::{Address, Link, Reach};

use tokio::{runtime::Handle, sync::watch};

use crate::{Error, Settings, clock, handler_scope, produce::SendQueue, stop::StopHandle};

/// How long the shutdown task may exceed the processing timeout before a caller finishes the shutdown itself.
const OVERDUE: Duration = Duration::from_secs(60);

/// The result of the shutdown, once it is done.
type ShutdownResult = Option<Result<(), Error>>;

/// A message queue on Redis Streams. Cloning shares it.
///
/// End it with [`shutdown`](Self::shutdown). Dropping the last clone stops the listeners as well, but waits for
/// nothing.
#[derive(Clone)]
pub struct Streams {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) address: Address,
    pub(crate) link: Link,
    pub(crate) settings: Settings,
    pub(crate) consumer: String,
    /// Running listeners by stream, group and consumer.
    pub(crate) listeners: Mutex<Vec<(String, StopHandle)>>,
    pub(crate) expiry_handles: crate::expiry::ExpiryHandles,
    #[cfg(feature = "delayed")]
    pub(crate) delayed: crate::delayed::Delayed,
    /// No new work is accepted.
    closed: AtomicBool,
    /// The shutdown is complete: every call fails.
    ended: AtomicBool,
    /// The first call starts the shutdown task; every call waits for its result.
    shutdown: Mutex<Option<watch::Receiver<ShutdownResult>>>,
    runtime: Handle,
    pub(crate) send_queue: SendQueue,
    /// A random number, the prefix of message ids.
    pub(crate) identity: u64,
    sent: AtomicU64,
}

impl Streams {
    /// Connects to `redis://host`, `rediss://host`, `redis-cluster://a,b,c` or `redis-sentinel://a,b,c/name`.
    ///
    /// Cancel safety: dropped midway, nothing is left running.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, Settings::default()).await
    }

    /// Connects with these settings; `url` replaces the one in them.
    ///
    /// Cancel safety: dropped midway, nothing is left running.
    pub async fn connect_with(url: &str, settings: Settings) -> Result<Self, Error> {
        Self::open(Settings { url: url.into(), ..settings }).await
    }

    /// Connects to the Redis that the settings name.
    ///
    /// Cancel safety: dropped midway, nothing is left running.
    pub async fn open(settings: Settings) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        settings.check()?;
        let address = Address::parse(settings.url.as_str())
            .map_err(|what| Error::Invalid(format!("this is not the address of a Redis: {what}")))?;
        let link = Link::connect(&address, &Reach::QUICK).await.map_err(|error| Error::on_connect(&error))?;
        let identity = clock::random_u64();
        let consumer = settings.consumer.clone().unwrap_or_else(|| format!("{identity:016x}"));
        let inner = Inner {
            #[cfg(feature = "delayed")]
            delayed: crate::delayed::Delayed::default(),
            address,
            link,
            settings,
            consumer,
            listeners: Mutex::default(),
            expiry_handles: crate::expiry::ExpiryHandles::default(),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            shutdown: Mutex::default(),
            runtime,
            send_queue: SendQueue::default(),
            identity,
            sent: AtomicU64::new(0),
        };
        let streams = Self { inner: Arc::new(inner) };
        #[cfg(feature = "delayed")]
        streams.begin_delayed().await;
        Ok(streams)
    }

    #[cfg(feature = "delayed")]
    async fn begin_delayed(&self) {
        let inner = &self.inner;
        inner.delayed.begin(&inner.settings, &inner.consumer).await;
        tokio::spawn(crate::delayed::watch(Arc::downgrade(inner)));
    }

    /// A unique message id, for callers that must [know it](crate::Message::id) before the send.
    pub fn new_id(&self) -> String {
        self.inner.next_id().to_string()
    }

    /// Shuts down: listeners stop reading, handlers finish within the processing timeout, and no more sends are
    /// accepted. Other processes retry what was not finished.
    ///
    /// It may be called repeatedly: all calls wait for one shutdown and return its result. From then on every other
    /// call returns [`Error::Closed`].
    ///
    /// It runs in a task of the runtime that `connect` was called in. Cancel safety: dropped midway, that task goes on.
    /// If that runtime has ended, the caller finishes the shutdown; if nobody drives it, a minute after the processing
    /// timeout.
    ///
    /// **Called in a handler** of this `Streams`, it starts the shutdown and returns at once, because the shutdown waits for that handler. A
    /// task that the handler spawned, or a blocking handler (`spawn_blocking`, `block_in_place` with `block_on`), is not recognised as a
    /// handler: there the call waits for the processing timeout.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let mut result = self.start_shutdown();
        if handler_scope::is_inside(self.inner.identity) {
            return Ok(());
        }
        let overdue = self.inner.settings.processing_timeout.saturating_add(OVERDUE);
        let by_task = tokio::select! {
            biased;
            answer = result.wait_for(Option::is_some) => answer.ok().and_then(|answer| answer.clone()),
            () = within_a_runtime(clock::sleep(overdue)) => None,
        };
        match by_task {
            Some(result) => result,
            // The task was dropped with its runtime, or nobody drives it.
            None => self.finish_shutdown().await,
        }
    }

    fn start_shutdown(&self) -> watch::Receiver<ShutdownResult> {
        let mut result = self.inner.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*result {
            return started.clone();
        }
        self.inner.closed.store(true, Ordering::Release);
        let (result_tx, result_rx) = watch::channel(None);
        *result = Some(result_rx.clone());
        let streams = self.clone();
        self.inner.runtime.spawn(async move {
            streams.stop_listeners().await;
            result_tx.send_replace(Some(streams.finish_shutdown().await));
        });
        result_rx
    }

    async fn stop_listeners(&self) {
        let listeners: Vec<_> = self.inner.listeners().drain(..).map(|(_, listener)| listener).collect();
        // Ask all of them first, then wait for each.
        listeners.iter().for_each(StopHandle::request_stop);
        for listener in listeners {
            listener.stopped().await;
        }
        self.inner.expiry_handles.stop().await;
    }

    /// May run twice.
    async fn finish_shutdown(&self) -> Result<(), Error> {
        #[cfg(feature = "delayed")]
        let result = self.inner.delayed.shutdown().await;
        #[cfg(not(feature = "delayed"))]
        let result = Ok(());
        self.inner.ended.store(true, Ordering::Release);
        result
    }

    /// Fails if no new work is accepted.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.is_closed() { Err(Error::Closed) } else { self.check_usable() }
    }

    /// Fails once the shutdown is complete. Until then running work may still be settled.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        if self.inner.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // Connections and tasks panic outside of a runtime.
        Handle::try_current().map(drop).map_err(|_| Error::NoRuntime)
    }
}

/// Waits for `sleep`; for ever outside of a runtime, which has the timers.
async fn within_a_runtime(sleep: impl Future<Output = ()>) {
    if Handle::try_current().is_err() {
        return std::future::pending().await;
    }
    sleep.await;
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The id of a new message.
    pub(crate) fn next_id(&self) -> MessageId {
        MessageId::from_counter(self.identity, self.sent.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn listeners(&self) -> std::sync::MutexGuard<'_, Vec<(String, StopHandle)>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.listeners().iter().for_each(|(_, listener)| listener.request_stop());
    }
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("address", &self.inner.address)
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}
