//! The front: connecting, sending, ending.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use redis::Cmd;
use redis_link::{Address, Link, Reach};
use serde::Serialize;

use crate::{
    Entry, EntryId, Error, Listening, Settings, clock,
    entry::{BODY, CONTENT_TYPE, DULY_ATTEMPT, DULY_DUE, DULY_ID, JSON},
    listen::Stopper,
    settings::check_event,
};

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
    /// By event.
    pub(crate) listeners: Mutex<Vec<(String, Stopper)>>,
    pub(crate) expiring: crate::expiry::Running,
    #[cfg(feature = "delayed")]
    pub(crate) duly: duly::Duly,
    closed: AtomicBool,
    /// Ids of messages begin with what was drawn at the start, and count up.
    drawn: u64,
    sent: AtomicU64,
}

impl RedisMq {
    /// Connects to `redis://host`, `rediss://host`, `redis-cluster://a,b,c` or `redis-sentinel://a,b,c/name`.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, Settings::default()).await
    }

    /// The same, with settings of one's own.
    pub async fn connect_with(url: &str, settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let address = Address::parse(url)
            .map_err(|what| Error::Invalid(format!("this is not the address of a Redis: {what}")))?;
        let link =
            Link::connect(&address, &Reach::QUICK).await.map_err(|error| Error::unconnected(&error))?;
        let drawn = clock::draw();
        let consumer = settings.consumer.clone().unwrap_or_else(|| format!("{drawn:016x}"));
        let inner = Inner {
            #[cfg(feature = "delayed")]
            duly: crate::delayed::start(url, &settings, &consumer, drawn).await?,
            address,
            link,
            settings,
            consumer,
            listeners: Mutex::default(),
            expiring: crate::expiry::Running::default(),
            closed: AtomicBool::new(false),
            drawn,
            sent: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Appends the value, as JSON, to the stream that the event names, now. Answers where it stands there.
    ///
    /// Sent twice it is there twice, also if the two are equal. If the connection breaks before the answer comes, the error is
    /// [`Unanswered`](Error::Unanswered): it may be there. A cluster is then asked again by itself, so that it may be
    /// there twice; both have the same `duly-id`.
    pub async fn send<T: Serialize + ?Sized>(&self, event: &str, value: &T) -> Result<EntryId, Error> {
        self.check_open()?;
        check_event(event)?;
        let body = serde_json::to_vec(value).map_err(|why| Error::Encode(why.to_string()))?;
        let command = self.append(event, &body);
        let id: String =
            command.query_async(&mut self.inner.link.clone()).await.map_err(|error| Error::of(&error))?;
        Ok(EntryId::new(id))
    }

    /// The fields are those that Duly's sink writes.
    fn append(&self, event: &str, body: &[u8]) -> Cmd {
        let mut command = redis::cmd("XADD");
        command.arg(event);
        if let Some(most) = self.inner.settings.max_len {
            command.arg("MAXLEN").arg("~").arg(most);
        }
        let serial = self.inner.sent.fetch_add(1, Ordering::Relaxed);
        command.arg("*").arg(BODY).arg(body).arg(CONTENT_TYPE).arg(JSON);
        command.arg(DULY_ID).arg(format!("{:016x}-{serial}", self.inner.drawn));
        command.arg(DULY_DUE).arg(clock::now_ms()).arg(DULY_ATTEMPT).arg(1);
        command
    }

    /// Hands every event of that name to `handler`, by one process of the [group](Settings::group) each. Begins with
    /// [`start`](Listening::start).
    ///
    /// What the handler answers with `Ok` is done. If it answers with an error, panics or takes too long, that is logged and
    /// the event is tried again, [later](Settings::processing_timeout); the others go on meanwhile. A handler that blocks its
    /// thread cannot be ended: let it do so in `tokio::task::spawn_blocking`.
    pub fn listener<T, H, F, E>(&self, event: impl Into<String>, handler: H) -> Listening<T>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        Listening::new(self.clone(), event.into(), handler)
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
