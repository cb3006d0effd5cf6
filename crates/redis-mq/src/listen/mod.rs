//! Listening: events of one name, handed to a handler one by one.

mod group;
mod handling;
mod reading;

use std::{fmt::Display, sync::Arc};

use redis_link::{Link, Reach};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::{Entry, EntryId, Error, RedisMq, clock, settings::check_event};

use self::{
    group::Group,
    handling::{Done, Handler, Handling},
    reading::Reader,
};

/// How much longer than it was told to wait a read may take.
const READ_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// An entry that holds no value of the type that is listened for.
#[derive(Debug, Clone)]
pub struct Undecodable {
    /// The event.
    pub event: String,
    /// Where it stands in the stream; it stays there.
    pub id: EntryId,
    /// Why it cannot be read.
    pub why: String,
    /// Its fields, as they stand there.
    pub entry: Entry<()>,
}

type Told = Arc<dyn Fn(&Undecodable) + Send + Sync>;

/// A listener, before it [starts](Self::start).
#[must_use = "a listener hears nothing until it is started"]
pub struct Listening<T> {
    mq: RedisMq,
    event: String,
    handler: Handler<T>,
    undecodable: Option<Told>,
}

impl<T: DeserializeOwned + Send + 'static> Listening<T> {
    pub(crate) fn new<H, F, E>(mq: RedisMq, event: String, handler: H) -> Self
    where
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let handler = Arc::new(handler);
        let handler: Handler<T> = Arc::new(move |entry| {
            let handler = handler.clone();
            // Within the future, so that a handler which panics at once is caught, too.
            Box::pin(async move { handler(entry).await.map_err(|why| why.to_string()) })
        });
        Self { mq, event, handler, undecodable: None }
    }

    /// Is told of every entry that holds no `T`, besides the log. Only then is the entry acknowledged: nobody could ever
    /// handle it. It stays in the stream. If `tell` panics, it is told of it again later.
    pub fn on_undecodable(mut self, tell: impl Fn(&Undecodable) + Send + Sync + 'static) -> Self {
        self.undecodable = Some(Arc::new(tell));
        self
    }

    /// Makes the group if it is missing, and begins. From here on it goes on by itself, also if Redis is away for a while,
    /// until it is [stopped](Listener::stop) or the [`RedisMq`] is. There is one listener per event and process.
    pub async fn start(self) -> Result<Listener, Error> {
        let Self { mq, event, handler, undecodable } = self;
        mq.check_open()?;
        check_event(&event)?;
        let inner = &*mq.inner;
        let (stopper, stopped) = Stopper::new();
        if !inner.settings.enabled {
            tracing::info!(event, "this process does not work on events: the listener hears nothing");
            return Ok(Listener { stopper });
        }
        let group = Group { event, name: inner.settings.group.clone(), consumer: inner.consumer.clone() };
        stopper.register(&mut inner.listeners(), &group.event)?;
        let mut shared = inner.link.clone();
        group.create(&mut shared, inner.settings.from).await.map_err(|error| Error::of(&error))?;
        // Its reads wait inside of Redis, and whoever shared the connection would wait with them.
        let reach = Reach::within(inner.settings.poll_interval + READ_GRACE);
        let link = Link::connect(&inner.address, &reach).await.map_err(|error| Error::unconnected(&error))?;
        let (done, acks) = tokio::sync::mpsc::unbounded_channel();
        let handling = Handling::new(&group, &inner.settings, handler, undecodable, done);
        let reader = Reader::new(group.clone(), link, shared.clone(), inner.settings.clone(), handling);
        let acking = tokio::spawn(acknowledge(group.clone(), shared.clone(), acks));
        let (stop, ended) = (stopped.stop, stopped.ended);
        tokio::spawn(async move {
            reader.run(stop).await;
            // The last handler is gone, and with it the last that could say "done".
            let _ = acking.await;
            if let Err(error) = group.leave(&mut shared).await {
                tracing::debug!(event = group.event, "the consumer stays in its group: {error}");
            }
            drop(ended);
        });
        // Shut down meanwhile, or it would be left out.
        if mq.check_open().is_err() {
            stopper.tell();
        }
        Ok(Listener { stopper })
    }
}

/// Acknowledges what is done, as many at once as there are.
async fn acknowledge(group: Group, mut link: Link, mut done: tokio::sync::mpsc::UnboundedReceiver<Done>) {
    const TOGETHER: usize = 256;
    let mut ids = Vec::new();
    loop {
        if done.recv_many(&mut ids, TOGETHER).await == 0 {
            return;
        }
        for wait in [100, 1_000, 5_000] {
            match group.ack(&mut link, &ids).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(
                        event = group.event,
                        "{} entries are not acknowledged yet: {error}",
                        ids.len()
                    );
                    clock::sleep(std::time::Duration::from_millis(wait)).await;
                }
            }
        }
        // What could not be told comes again: at least once.
        ids.clear();
    }
}

/// A listener that was started. Dropping it changes nothing: it listens on.
#[derive(Debug)]
pub struct Listener {
    stopper: Stopper,
}

impl Listener {
    /// Whether it listens.
    pub fn is_running(&self) -> bool {
        self.stopper.is_running()
    }

    /// Reads nothing more, and returns when running handlers have finished, at the latest after the processing timeout.
    pub async fn stop(self) {
        self.stopper.tell();
        self.stopper.gone().await;
    }
}

/// Tells a listener to stop, and when it has.
#[derive(Debug, Clone)]
pub(crate) struct Stopper {
    stop: Arc<watch::Sender<bool>>,
    ended: watch::Receiver<()>,
}

/// The other ends: `ended` is dropped at the end.
struct Stopped {
    stop: watch::Receiver<bool>,
    ended: watch::Sender<()>,
}

impl Stopper {
    fn new() -> (Self, Stopped) {
        let (stop, told) = watch::channel(false);
        let (ended, gone) = watch::channel(());
        (Self { stop: Arc::new(stop), ended: gone }, Stopped { stop: told, ended })
    }

    fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok() && !*self.stop.borrow()
    }

    /// Two listeners of one process would take each other's entries for left behind.
    fn register(&self, all: &mut Vec<(String, Self)>, event: &str) -> Result<(), Error> {
        // Those whose other end is gone have ended.
        all.retain(|(_, other)| other.ended.has_changed().is_ok());
        if all.iter().any(|(known, _)| known == event) {
            let words = format!("a listener of {event:?} is running in this process; stop it first");
            return Err(Error::Invalid(words));
        }
        all.push((event.to_owned(), self.clone()));
        Ok(())
    }

    pub(crate) fn tell(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn gone(mut self) {
        while self.ended.changed().await.is_ok() {}
    }
}
