//! The library's front: sending, and the clean end.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly_core::{
    Clock, ErrorCode, Invalid, Lane, Limits, MessageId, NodeStatus, Now, ShardStatus, Sink, SinkName, State,
    Store, Timestamp, Topic,
    schedule::Random,
    store::{Insert, Inserted},
};
use tokio::runtime::Handle;

use crate::{
    Builder, Error, Events, HandlerOptions, Levels, Message, Metrics, Stats, StoredMessage,
    engine::{Parts, caught},
    events::Event,
    expiry,
    handle::Known,
    message::after,
    observed::Call,
    receipt_cache::ReceiptCache,
    seconds,
    shutdown::Shutdown,
    tally::add,
};

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
    pub(crate) handlers: HandlerOptions,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) deliver: bool,
    pub(crate) receipt_cache: ReceiptCache,
    /// The handlers that run, and those that were stopped.
    pub(crate) handling: Mutex<HashMap<Topic, Known>>,
    random: Mutex<Random>,
    /// Nothing more is accepted.
    pub(crate) closed: AtomicBool,
    /// The store is closed: no call does anything any more.
    pub(crate) ended: AtomicBool,
    pub(crate) shutdown: Shutdown,
    /// The one that it was started in: what outlives a call runs there.
    pub(crate) runtime: Handle,
    pub(crate) tasks: Vec<tokio::task::AbortHandle>,
}

/// A message that Duly has taken: it is durable, and will be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Whether the first one's time is another than the one sent now: it stands, and
    /// [`reschedule`](Duly::reschedule) changes it.
    pub time_kept: bool,
}

impl Duly {
    /// Opens the store in `folder`, making it if it is not there, and starts delivering. Must be called in a Tokio runtime, as every call.
    ///
    /// Cancel safety: dropped midway, nothing is delivered; the folder stays locked until the opening that was begun has ended.
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
        let listener = parts.liveness.clone().supervise("the listener for hints", async move {
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
        // Whoever only accepts gives up nothing either.
        let expiry = from.deliver.then(|| {
            let (store, clock, events) = (parts.store.clone(), parts.clock.clone(), parts.events.clone());
            parts
                .liveness
                .clone()
                .supervise("the task that expires messages", expiry::watch(store, clock, events))
        });
        let inner = Inner {
            parts,
            sinks,
            levels: from.levels,
            limits: from.limits,
            handlers: from.handlers,
            lease: from.lease,
            grace: from.grace,
            deliver: from.deliver,
            receipt_cache: ReceiptCache::default(),
            handling: Mutex::default(),
            random: Mutex::new(Random::new(seed ^ 0x6475_6C79)),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            shutdown: Shutdown::default(),
            runtime: Handle::current(),
            tasks: [driver, listener].into_iter().chain(expiry).collect(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a message. Once this returns `Ok`, it is as durable as the store can make it.
    ///
    /// If the store gives no answer, the message may have been accepted: [`Error::Unanswered`] has its id, and whoever sends it again with
    /// that id sends the same message. Cancel safety: dropped midway, it may have been accepted too; give it an id before
    /// ([`new_id`](Self::new_id), or one of your own) to be able to repeat it.
    ///
    /// ```
    /// # use duly::{Duly, Error, Message, minutes};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let duly = Duly::builder().memory().start().await?;
    /// let message = Message::to("order").id(duly.new_id()).after(minutes(15));
    /// let accepted = match duly.send(message.clone()).await {
    ///     Err(error) if error.is_maybe_done() => duly.send(message).await?, // the same message
    ///     answer => answer?,
    /// };
    /// # let _ = accepted;
    /// # Ok(()) }
    /// ```
    pub async fn send(&self, message: Message) -> Result<Accepted, Error> {
        self.check_open()?;
        let now = self.inner.parts.clock.now();
        let insert = self.accept(now, message)?;
        let mut answers = self.insert(now, vec![insert]).await?;
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Takes many messages at once; one answer each, in their order. Not atomic: each stands alone. Cancel safety: dropped midway, any of them may have
    /// been accepted.
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
                Err(Invalid::new(ErrorCode::BatchTooLarge, format!("[{place}]"), detail).into())
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

    /// An id that no other message has, made as [`send`](Self::send) makes one: for whoever must know it before the call.
    pub fn new_id(&self) -> MessageId {
        self.id_is_generated(self.inner.parts.clock.now())
    }

    fn id_is_generated(&self, now: Now) -> MessageId {
        MessageId::made(now.wall(), u128::from(self.draw()) << 64 | u128::from(self.draw()))
    }

    /// A message as [`send`](Self::send) would take it, with its id, its time and its limits decided, and not sent: for a
    /// [transaction of one's own](crate::outbox).
    pub fn prepare(&self, message: Message) -> Result<StoredMessage, Error> {
        self.check_accepting()?;
        Ok(self.accept(self.inner.parts.clock.now(), message)?.message)
    }

    fn accept(&self, now: Now, message: Message) -> Result<Insert, Error> {
        let inner = &*self.inner;
        let insert = message.accept(now, &inner.levels, &inner.limits, || self.id_is_generated(now))?;
        let name = &insert.message.sink;
        if !name.is_queue() {
            let Some(sink) = inner.sinks.get(name) else {
                let detail = format!("no sink {:?} is configured", name.as_str());
                return Err(Invalid::new(ErrorCode::UnknownSink, "sink", detail).into());
            };
            sink.check(&insert.message)?;
        }
        Ok(insert)
    }

    pub(crate) fn draw(&self) -> u64 {
        self.inner.random.lock().unwrap_or_else(PoisonError::into_inner).draw()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Result<Accepted, Error>>, Error> {
        let told: Vec<_> = batch
            .iter()
            .map(|insert| (insert.message.id.clone(), insert.message.lane(), insert.message.due))
            .collect();
        let events = &self.inner.parts.events;
        let results = match events.observe(Call::Insert, now, self.store()?.insert(now, batch).await) {
            Ok(results) => results,
            Err(error) if error.is_maybe_done() => {
                let unanswered = |(id, _, _): (MessageId, Lane, Timestamp)| {
                    Err(Error::Unanswered { id, error: error.clone() })
                };
                return Ok(told.into_iter().map(unanswered).collect());
            }
            Err(error) => return Err(error.into()),
        };
        let answer = |((id, lane, due), inserted): ((MessageId, Lane, Timestamp), Inserted)| match inserted {
            Inserted::Accepted => {
                self.accepted(now, &id, lane, due);
                Ok(Accepted { id, due, state: State::Pending, duplicate: false, time_kept: false })
            }
            Inserted::Duplicate { due: first, state } => {
                add(&events.tally.duplicates, 1);
                Ok(Accepted { id, due: first, state, duplicate: true, time_kept: first != due })
            }
            Inserted::Conflict => Err(Error::IdConflict(id)),
        };
        Ok(told.into_iter().zip(results).map(answer).collect())
    }

    fn accepted(&self, now: Now, id: &MessageId, lane: Lane, due: Timestamp) {
        let events = &self.inner.parts.events;
        add(&events.tally.accepted, 1);
        if events.has_subscribers() {
            events.publish(Event::Accepted { id: id.clone(), lane: lane.clone(), due });
        }
        if due <= now.wall().saturating_add(HINT_AHEAD) {
            self.inner.parts.hints.tell(lane, due);
        }
    }

    /// What happens from now on. A slow listener loses the oldest events, never slows Duly.
    pub fn events(&self) -> Events {
        self.inner.parts.events.subscribe()
    }

    /// Counts and lateness of this process.
    pub fn stats(&self) -> Stats {
        self.inner.parts.events.tally.stats()
    }

    /// Everything that this process measures: counts, and lateness and calls per lane.
    pub fn metrics(&self) -> Metrics {
        let parts = &self.inner.parts;
        parts.events.tally.metrics(parts.store.metrics())
    }

    /// The nodes that share the store, this one too, by name; none if it is this process's alone.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, Error> {
        Ok(self.store()?.nodes().await?)
    }

    /// The shards of a store that nodes share, by number: who delivers what of each, and since when something waits there; none if
    /// the store is this process's alone.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn shards(&self) -> Result<Vec<ShardStatus>, Error> {
        let parts = &self.inner.parts;
        Ok(self.store()?.shards(parts.clock.now()).await?)
    }

    /// The lanes that other nodes serve and this one does not, by name: what waits in them waits for nobody here.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn served_elsewhere(&self) -> Result<BTreeSet<String>, Error> {
        let (this, others): (Vec<_>, Vec<_>) = self.nodes().await?.into_iter().partition(|node| node.this);
        let own: BTreeSet<String> = this.into_iter().flat_map(|node| node.lanes).collect();
        Ok(others.into_iter().flat_map(|node| node.lanes).filter(|lane| !own.contains(lane)).collect())
    }

    /// The time, as this Duly sees it.
    pub fn now(&self) -> Timestamp {
        self.inner.parts.clock.now().wall()
    }

    /// The due time of what waits for `delay` from now: the first whole millisecond that is not before its end.
    pub fn due_after(&self, delay: Duration) -> Timestamp {
        after(self.inner.parts.clock.now(), delay)
    }

    /// The latest due time that is accepted now.
    pub fn due_max(&self) -> Timestamp {
        self.due_after(self.inner.limits.delay_max)
    }

    /// The clock it goes by, for whoever must wait or measure beside it.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.parts.clock
    }

    /// The sinks it knows, in order, whether this process delivers to them or not.
    pub fn sinks(&self) -> Vec<&SinkName> {
        self.inner.sinks.keys().collect()
    }

    pub(crate) fn handling(&self) -> MutexGuard<'_, HashMap<Topic, Known>> {
        self.inner.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something new may be begun.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { self.check_usable() }
    }

    /// The same for what needs neither the store nor a task, and so no runtime.
    pub(crate) fn check_accepting(&self) -> Result<(), Error> {
        if self.inner.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { self.check_alive() }
    }

    /// Without the task that delivers, nothing is to be relied on.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.inner.parts.liveness.check()
    }

    /// Whether the store may be asked: while it is being shut down, what was begun may still be ended.
    fn check_usable(&self) -> Result<(), Error> {
        if self.inner.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        // Stores and tasks would panic outside of one.
        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.check_alive()
    }

    /// The store, for as long as delivery goes on: every call of a Duly that has failed or ended says so.
    pub(crate) fn store(&self) -> Result<&dyn Store, Error> {
        self.check_usable()?;
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
