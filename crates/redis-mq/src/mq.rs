//! The front: connecting, sending, ending.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use redis_link::{Address, Link, Reach};

use crate::{Error, Settings, clock, listen::Stopper, produce::Pipe};

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
    pub(crate) duly: duly::Duly,
    closed: AtomicBool,
    pub(crate) pipe: Pipe,
    /// Ids of messages begin with what was drawn at the start, and count up.
    drawn: u64,
    sent: AtomicU64,
}

impl RedisMq {
    /// Connects to `redis://host`, `rediss://host`, `redis-cluster://a,b,c` or `redis-sentinel://a,b,c/name`.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, Settings::default()).await
    }

    /// The same, with settings of one's own; `url` stands above the one in them.
    pub async fn connect_with(url: &str, settings: Settings) -> Result<Self, Error> {
        Self::open(Settings { url: url.into(), ..settings }).await
    }

    /// Connects to the Redis that the settings name.
    pub async fn open(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let address = Address::parse(settings.url.as_str())
            .map_err(|what| Error::Invalid(format!("this is not the address of a Redis: {what}")))?;
        let link =
            Link::connect(&address, &Reach::QUICK).await.map_err(|error| Error::unconnected(&error))?;
        let drawn = clock::draw();
        let consumer = settings.consumer.clone().unwrap_or_else(|| format!("{drawn:016x}"));
        let inner = Inner {
            #[cfg(feature = "delayed")]
            duly: crate::delayed::start(&settings, &consumer, drawn).await?,
            address,
            link,
            settings,
            consumer,
            listeners: Mutex::default(),
            expiring: crate::expiry::Running::default(),
            closed: AtomicBool::new(false),
            pipe: Pipe::default(),
            drawn,
            sent: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Stops cleanly: reads nothing more, lets handlers finish within the processing timeout, and takes no more to send.
    /// What was not finished is tried again by others.
    pub async fn shutdown(&self) -> Result<(), Error> {
        if self.inner.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        let listeners: Vec<_> = self.inner.listeners().drain(..).map(|(_, listener)| listener).collect();
        // All at once, and only then wait for each.
        listeners.iter().for_each(Stopper::tell);
        for listener in listeners {
            listener.gone().await;
        }
        self.inner.expiring.stop().await;
        #[cfg(feature = "delayed")]
        self.inner.duly.shutdown().await?;
        Ok(())
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Inner {
    /// A message's own id.
    pub(crate) fn next_id(&self) -> String {
        let serial = self.sent.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{serial}", self.drawn)
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
