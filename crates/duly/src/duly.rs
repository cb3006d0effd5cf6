//! The library's front: sending, and the clean end.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly_core::{
    Clock, Invalid, Lane, Limits, MessageId, Monotonic, NodeStatus, Now, RetryPolicy, ShardStatus, Sink,
    SinkName, State, Store, Timestamp, Topic,
    schedule::Random,
    store::{Insert, Inserted},
};
use tokio::sync::oneshot;

use crate::{
    Builder, Error, Events, HandlerOptions, Levels, Measures, Message, Prepared, Stats,
    engine::{Note, Parts, caught},
    events::Event,
    handed::Handed,
    observed::Call,
    seconds,
    tally::add,
};

/// After the grace of handlers and sinks, what was handed back may take this long to be recorded.
const RECORDING: Duration = seconds(5);
/// The pause after the store panicked instead of giving a hint.
const HINT_PAUSE: Duration = seconds(1);
/// A message due later than this needs no wake-up: the sweep tells of it long before.
const HINT_AHEAD: Duration = seconds(10);

/// Delayed messages in this process. Cloning shares it.
///
/// End it with [`shutdown`](Self::shutdown). Dropping the last one without is like a crash: deliveries stop at once,
/// nothing is lost, and what was under way comes again when the store is opened next.
#[derive(Clone)]
pub struct Duly {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) parts: Parts,
    pub(crate) sinks: BTreeMap<SinkName, Arc<dyn Sink>>,
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) retry: RetryPolicy,
    pub(crate) handlers: HandlerOptions,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) deliver: bool,
    pub(crate) handed: Handed,
    pub(crate) handling: Mutex<HashSet<Topic>>,
    ids: Mutex<Random>,
    closed: AtomicBool,
    tasks: [tokio::task::AbortHandle; 2],
}

/// A message that Duly has taken: it is durable, and will be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its id, given or made.
    pub id: MessageId,
    /// When it is due.
    pub due: Timestamp,
    /// Where it stands: pending, unless it is a duplicate.
    pub state: State,
    /// Whether it was known before with the same content: then nothing changed, and the time and state are the
    /// first one's.
    pub duplicate: bool,
}

impl Duly {
    /// Opens the store in `folder`, making it if it is not there, and starts delivering.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::builder().folder(folder).start().await
    }

    /// Puts a Duly together by hand.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        parts: Parts,
        driver: tokio::task::AbortHandle,
        sinks: BTreeMap<SinkName, Arc<dyn Sink>>,
        from: Builder,
        seed: u64,
    ) -> Self {
        let (store, hints) = (parts.store.clone(), parts.hints.clone());
        let clock = parts.clock.clone();
        let listener = tokio::spawn(async move {
            loop {
                match caught(store.hint()).await {
                    Ok(hint) => hints.tell(hint.lane, hint.due),
                    Err(panic) => {
                        // Wake-ups are hints: until the next one the sweep finds what is due.
                        tracing::error!(panic, "hint failed");
                        clock.sleep_until(clock.now().mono().saturating_add(HINT_PAUSE)).await;
                    }
                }
            }
        });
        let inner = Inner {
            parts,
            sinks,
            levels: from.levels,
            limits: from.limits,
            retry: from.retry,
            handlers: from.handlers,
            lease: from.lease,
            grace: from.grace,
            deliver: from.deliver,
            handed: Handed::default(),
            handling: Mutex::default(),
            ids: Mutex::new(Random::new(seed ^ 0x6475_6C79)),
            closed: AtomicBool::new(false),
            tasks: [driver, listener.abort_handle()],
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a message. Once this returns `Ok`, it is as durable as the store can make it.
    pub async fn send(&self, message: Message) -> Result<Accepted, Error> {
        self.check_open()?;
        let now = self.inner.parts.clock.now();
        let insert = self.accept(now, message)?;
        let mut answers = self.insert(now, vec![insert]).await?;
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Takes many messages at once; one answer each, in their order. Not atomic: each stands alone.
    pub async fn send_batch(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Accepted, Error>> {
        let now = self.inner.parts.clock.now();
        let max = self.inner.limits.batch_max;
        let (mut inserts, mut places, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (place, message) in messages.into_iter().enumerate() {
            let checked = if place < max {
                self.check_open().and_then(|()| self.accept(now, message))
            } else {
                let detail = format!("a batch has at most {max} messages; send the rest in another");
                Err(Invalid::new("batch_too_large", format!("[{place}]"), detail).into())
            };
            match checked {
                Ok(insert) => {
                    inserts.push(insert);
                    places.push(place);
                    answers.push(Err(Error::Closed));
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        if inserts.is_empty() {
            return answers;
        }
        match self.insert(now, inserts).await {
            Ok(results) => places.into_iter().zip(results).for_each(|(place, r)| answers[place] = r),
            Err(error) => places.into_iter().for_each(|place| answers[place] = Err(error.clone())),
        }
        answers
    }

    /// A message as [`send`](Self::send) would take it, with its id, its time and its limits decided, and not sent: for a
    /// [transaction of one's own](crate::outbox).
    pub fn prepare(&self, message: Message) -> Result<Prepared, Error> {
        Ok(self.accept(self.inner.parts.clock.now(), message)?.message)
    }

    fn accept(&self, now: Now, message: Message) -> Result<Insert, Error> {
        let inner = &*self.inner;
        let made = || {
            let mut random = inner.ids.lock().unwrap_or_else(PoisonError::into_inner);
            MessageId::made(now.wall(), u128::from(random.draw()) << 64 | u128::from(random.draw()))
        };
        let insert = message.accept(now, &inner.levels, &inner.limits, made)?;
        let name = &insert.message.sink;
        if !name.is_queue() {
            let Some(sink) = inner.sinks.get(name) else {
                let detail = format!("no sink {:?} is configured", name.as_str());
                return Err(Invalid::new("unknown_sink", "sink", detail).into());
            };
            sink.check_topic(&insert.message.topic)?;
        }
        Ok(insert)
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Result<Accepted, Error>>, Error> {
        let told: Vec<_> = batch
            .iter()
            .map(|insert| (insert.message.id.clone(), insert.message.lane(), insert.message.due))
            .collect();
        let bell = &self.inner.parts.bell;
        let results = bell.observe(Call::Insert, now, self.store()?.insert(now, batch).await)?;
        let answer = |((id, lane, due), inserted): ((MessageId, Lane, Timestamp), Inserted)| match inserted {
            Inserted::Accepted => {
                self.accepted(now, &id, lane, due);
                Ok(Accepted { id, due, state: State::Pending, duplicate: false })
            }
            Inserted::Duplicate { due, state } => {
                add(&bell.tally.duplicates, 1);
                Ok(Accepted { id, due, state, duplicate: true })
            }
            Inserted::Conflict => Err(Error::IdConflict(id)),
        };
        Ok(told.into_iter().zip(results).map(answer).collect())
    }

    fn accepted(&self, now: Now, id: &MessageId, lane: Lane, due: Timestamp) {
        let bell = &self.inner.parts.bell;
        add(&bell.tally.accepted, 1);
        if bell.heard() {
            bell.ring(Event::Accepted { id: id.clone(), lane: lane.clone(), due });
        }
        if due <= now.wall().saturating_add(HINT_AHEAD) {
            self.inner.parts.hints.tell(lane, due);
        }
    }

    /// What happens from now on. A slow listener loses the oldest events, never slows Duly.
    pub fn events(&self) -> Events {
        self.inner.parts.bell.listen()
    }

    /// Counts and lateness of this process.
    pub fn stats(&self) -> Stats {
        self.inner.parts.bell.tally.stats()
    }

    /// Everything that this process measures: counts, and lateness and calls per lane.
    pub fn measures(&self) -> Measures {
        let parts = &self.inner.parts;
        parts.bell.tally.measures(parts.store.measures())
    }

    /// The nodes that share the store, this one too, by name; none if it is this process's alone.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, Error> {
        Ok(self.store()?.nodes().await?)
    }

    /// The shards of a store that nodes share, by number: who delivers what of each, and since when something waits there; none if
    /// the store is this process's alone.
    pub async fn shards(&self) -> Result<Vec<ShardStatus>, Error> {
        let parts = &self.inner.parts;
        Ok(self.store()?.shards(parts.clock.now()).await?)
    }

    /// The lanes that other nodes serve and this one does not, by name: what waits in them waits for nobody here.
    pub async fn served_elsewhere(&self) -> Result<BTreeSet<String>, Error> {
        let (this, others): (Vec<_>, Vec<_>) = self.nodes().await?.into_iter().partition(|node| node.this);
        let own: BTreeSet<String> = this.into_iter().flat_map(|node| node.lanes).collect();
        Ok(others.into_iter().flat_map(|node| node.lanes).filter(|lane| !own.contains(lane)).collect())
    }

    /// The time, as this Duly sees it.
    pub fn now(&self) -> Timestamp {
        self.inner.parts.clock.now().wall()
    }

    /// The clock it goes by, for whoever must wait or measure beside it.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.parts.clock
    }

    /// The sinks it knows, in order, whether this process delivers to them or not.
    pub fn sinks(&self) -> Vec<&SinkName> {
        self.inner.sinks.keys().collect()
    }

    /// Stops cleanly: accepts nothing more, lets handlers and sinks finish within their time of grace, hands the rest
    /// back without counting a try, and closes the store. Ends within that grace and a few seconds, whatever happens. If
    /// delivery had stopped before by itself, the store is closed and the error says so.
    pub async fn shutdown(&self) -> Result<(), Error> {
        if self.inner.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        self.handling().clear();
        let grace_end = self.grace_end();
        let (gone, waiting) = oneshot::channel();
        let _ = self.inner.parts.notes.send(Note::Shutdown { grace_end, gone });
        self.bounded(grace_end, waiting).await;
        self.inner.tasks.iter().for_each(tokio::task::AbortHandle::abort);
        let closed = self.inner.parts.store.close().await;
        self.check_alive()?;
        Ok(closed?)
    }

    pub(crate) fn grace_end(&self) -> Monotonic {
        self.inner.parts.clock.now().mono().saturating_add(self.inner.grace)
    }

    /// Waits until the driver is done, or surely should be.
    pub(crate) async fn bounded(&self, grace_end: Monotonic, waiting: oneshot::Receiver<()>) {
        tokio::select! {
            _ = waiting => {}
            () = self.inner.parts.clock.sleep_until(grace_end.saturating_add(RECORDING)) => {
                tracing::warn!("not everything could be handed back in time; it comes again when its lease ends");
            }
        }
    }

    pub(crate) fn handling(&self) -> MutexGuard<'_, HashSet<Topic>> {
        self.inner.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { self.check_alive() }
    }

    /// Without the task that delivers, nothing is to be relied on.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.inner.parts.liveness.check()
    }

    /// The store, for as long as delivery goes on: every call of a Duly that has failed says so.
    pub(crate) fn store(&self) -> Result<&dyn Store, Error> {
        self.check_alive()?;
        Ok(&*self.inner.parts.store)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl std::fmt::Debug for Duly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duly").field("sinks", &self.sinks()).finish_non_exhaustive()
    }
}

/// What names a message: its id, or what [`Duly::send`] gave.
pub trait Named {
    /// The id, checked.
    fn id(&self) -> Result<MessageId, Invalid>;
}

impl Named for MessageId {
    fn id(&self) -> Result<MessageId, Invalid> {
        Ok(self.clone())
    }
}

impl Named for Accepted {
    fn id(&self) -> Result<MessageId, Invalid> {
        Ok(self.id.clone())
    }
}

impl Named for str {
    fn id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl Named for String {
    fn id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl<T: Named + ?Sized> Named for &T {
    fn id(&self) -> Result<MessageId, Invalid> {
        (**self).id()
    }
}
