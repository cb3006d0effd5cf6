//! The front: connecting, sending, ending.

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

use crate::{Error, Settings, clock, handler_scope, listen::Stopper, produce::Pipe};

/// How much longer than the processing timeout the task that shuts down may take before a caller does what is left.
const OVERDUE: Duration = Duration::from_secs(60);

/// How the shutdown went, once it is done.
type Answer = Option<Result<(), Error>>;

/// Events on Redis Streams. Cloning shares it.
///
/// End it with [`shutdown`](Self::shutdown). Dropping the last one without stops its listeners, too, but waits for nobody.
#[derive(Clone)]
pub struct RedisMq {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) address: Address,
    pub(crate) link: Link,
    pub(crate) settings: Settings,
    pub(crate) consumer: String,
    /// By stream, group and consumer.
    pub(crate) listeners: Mutex<Vec<(String, Stopper)>>,
    pub(crate) expiring: crate::expiry::Running,
    #[cfg(feature = "delayed")]
    pub(crate) delayed: crate::delayed::Delayed,
    /// Nothing more is sent.
    closed: AtomicBool,
    /// All is over: no call does anything any more.
    ended: AtomicBool,
    /// The first call starts the task that answers; every call waits for it.
    shutdown: Mutex<Option<watch::Receiver<Answer>>>,
    runtime: Handle,
    pub(crate) pipe: Pipe,
    /// Drawn at the start; ids of messages begin with it, and count up.
    pub(crate) identity: u64,
    sent: AtomicU64,
}

impl RedisMq {
    /// Connects to `redis://host`, `rediss://host`, `redis-cluster://a,b,c` or `redis-sentinel://a,b,c/name`.
    ///
    /// Cancel safety: dropped midway, nothing is left running.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, Settings::default()).await
    }

    /// The same, with settings of one's own; `url` stands above the one in them.
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
        let link =
            Link::connect(&address, &Reach::QUICK).await.map_err(|error| Error::unconnected(&error))?;
        let identity = clock::draw();
        let consumer = settings.consumer.clone().unwrap_or_else(|| format!("{identity:016x}"));
        let inner = Inner {
            #[cfg(feature = "delayed")]
            delayed: crate::delayed::Delayed::default(),
            address,
            link,
            settings,
            consumer,
            listeners: Mutex::default(),
            expiring: crate::expiry::Running::default(),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            shutdown: Mutex::default(),
            runtime,
            pipe: Pipe::default(),
            identity,
            sent: AtomicU64::new(0),
        };
        let mq = Self { inner: Arc::new(inner) };
        #[cfg(feature = "delayed")]
        mq.begin_delayed().await;
        Ok(mq)
    }

    #[cfg(feature = "delayed")]
    async fn begin_delayed(&self) {
        let inner = &self.inner;
        inner.delayed.begin(&inner.settings, &inner.consumer).await;
        tokio::spawn(crate::delayed::watch(Arc::downgrade(inner)));
    }

    /// An id that no other message has, made as a send makes one: for whoever must [know it](crate::Message::id) before the call.
    pub fn new_id(&self) -> String {
        self.inner.next_id().to_string()
    }

    /// Stops cleanly: reads nothing more, lets handlers finish within the processing timeout, and takes no more to send.
    /// What was not finished is tried again by others.
    ///
    /// It may be called any number of times: all calls wait for the one shutdown, and get its result. From then on every other call answers
    /// [`Error::Closed`].
    ///
    /// It runs in a task of the runtime that this one was connected in. Cancel safety: dropped midway, that task goes on. If that runtime has ended, the
    /// caller does what is left at once; if nobody drives it, when the processing timeout and a minute are over.
    ///
    /// **Called in a handler** of this one, it starts the shutdown and returns at once, as the shutdown waits for that handler. A task that the
    /// handler started, or a blocking handler (`spawn_blocking`, `block_in_place` with `block_on`), is not known to be one: there it waits for
    /// the processing timeout.
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
            // Nobody drives the task, or it was dropped with its runtime.
            None => self.finish_shutdown().await,
        }
    }

    fn start_shutdown(&self) -> watch::Receiver<Answer> {
        let mut result = self.inner.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*result {
            return started.clone();
        }
        self.inner.closed.store(true, Ordering::Release);
        let (result_tx, result_rx) = watch::channel(None);
        *result = Some(result_rx.clone());
        let mq = self.clone();
        self.inner.runtime.spawn(async move {
            mq.stop_listeners().await;
            result_tx.send_replace(Some(mq.finish_shutdown().await));
        });
        result_rx
    }

    async fn stop_listeners(&self) {
        let listeners: Vec<_> = self.inner.listeners().drain(..).map(|(_, listener)| listener).collect();
        // All at once, and only then wait for each.
        listeners.iter().for_each(Stopper::tell);
        for listener in listeners {
            listener.gone().await;
        }
        self.inner.expiring.stop().await;
    }

    /// May be run twice.
    async fn finish_shutdown(&self) -> Result<(), Error> {
        #[cfg(feature = "delayed")]
        let result = self.inner.delayed.shutdown().await;
        #[cfg(not(feature = "delayed"))]
        let result = Ok(());
        self.inner.ended.store(true, Ordering::Release);
        result
    }

    /// Whether something new may be begun.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.is_closed() { Err(Error::Closed) } else { self.check_usable() }
    }

    /// Whether Redis may be asked: until the end is over, what was begun may still be ended.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        if self.inner.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // Connections and tasks would panic outside of one.
        Handle::try_current().map(drop).map_err(|_| Error::NoRuntime)
    }
}

/// Outside of a runtime there is no timer to wait by.
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

    /// A message's own id.
    pub(crate) fn next_id(&self) -> MessageId {
        MessageId::numbered(self.identity, self.sent.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn listeners(&self) -> std::sync::MutexGuard<'_, Vec<(String, Stopper)>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.listeners().iter().for_each(|(_, listener)| listener.tell());
    }
}

impl std::fmt::Debug for RedisMq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisMq")
            .field("address", &self.inner.address)
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}
