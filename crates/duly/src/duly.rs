//! `Duly`: opening and sending.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use duly_core::{
    Clock, ErrorCode, Invalid, Lane, Limits, MessageId, NodeStatus, Now, ShardStatus, Sink, SinkName, State,
    Store, Timestamp, Topic,
    schedule::Random,
    store::{Insert, Inserted},
};

use crate::{
    Builder, Error, Events, HandlerOptions, Levels, Message, Metrics, Stats, StoredMessage,
    counters::add,
    engine::{EngineHandles, catch_panic},
    events::Event,
    expiry,
    handle::RegisteredHandler,
    health::check_runtime,
    message::after,
    receipt_cache::ReceiptCache,
    seconds,
    shutdown::Lifecycle,
    store_monitor::{CallKind, StoreCall},
    trace::Spans,
};

/// The pause after a panic of the store while waiting for a hint.
const HINT_PAUSE: Duration = seconds(1);
/// A message that is due later needs no hint: the sweep finds it in time.
const HINT_AHEAD: Duration = seconds(10);

/// A delayed message queue in this process. Cloning shares it.
///
/// End it with [`shutdown`](Self::shutdown). Dropping the last clone is like a crash: deliveries stop at once, nothing
/// is lost, and messages in flight are delivered again when the store is opened next.
#[derive(Clone)]
pub struct Duly {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// First, so that the tasks are aborted before anything else is dropped.
    pub(crate) lifecycle: Lifecycle,
    pub(crate) parts: EngineHandles,
    pub(crate) sinks: BTreeMap<SinkName, Arc<dyn Sink>>,
    pub(crate) options: DulyOptions,
    pub(crate) receipt_cache: ReceiptCache,
    /// Running and stopped handlers.
    pub(crate) handlers: Mutex<HashMap<Topic, RegisteredHandler>>,
    random: Mutex<Random>,
}

/// Options of the builder that calls need later.
pub(crate) struct DulyOptions {
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) handlers: HandlerOptions,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) deliver: bool,
}

/// An accepted message: it is durable and will be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// Its id, given or generated.
    pub id: MessageId,
    /// When it is due.
    pub due: Timestamp,
    /// Its state: pending, unless it is a duplicate.
    pub state: State,
    /// Whether the id was known with the same content: then nothing changed, and due time and state are those of the
    /// first message.
    pub duplicate: bool,
    /// Whether the first message has another due time than this one: it stays, and [`reschedule`](Duly::reschedule)
    /// changes it.
    pub time_kept: bool,
}

impl Duly {
    /// Opens the store in `folder`, creating it if it is missing, and starts delivering. Must be called in a Tokio
    /// runtime, like every call.
    ///
    /// Cancel safety: dropped midway, nothing is delivered; the folder stays locked until the opening that was started
    /// has ended.
    #[cfg(feature = "embedded")]
    pub async fn open(folder: impl Into<std::path::PathBuf>) -> Result<Self, Error> {
        Self::builder().folder(folder).start().await
    }

    /// Builds a Duly with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        parts: EngineHandles,
        driver: tokio::task::AbortHandle,
        sinks: BTreeMap<SinkName, Arc<dyn Sink>>,
        from: Builder,
        seed: u64,
    ) -> Self {
        let (store, hints) = (parts.store.clone(), parts.hints.clone());
        let clock = parts.clock.clone();
        let listener = parts.liveness.clone().supervise("the listener for hints", async move {
            loop {
                match catch_panic(store.hint()).await {
                    Ok(hint) => hints.push(hint.lane, hint.due),
                    Err(panic) => {
                        // Hints may be lost: the sweep finds what is due.
                        tracing::error!(panic, "hint failed");
                        clock.sleep_until(clock.now().mono().saturating_add(HINT_PAUSE)).await;
                    }
                }
            }
        });
        // A process that only accepts does not expire messages either.
        let expiry = from.deliver.then(|| {
            let (store, clock, events) = (parts.store.clone(), parts.clock.clone(), parts.events.clone());
            parts
                .liveness
                .clone()
                .supervise("the task that expires messages", expiry::run(store, clock, events))
        });
        let inner = Inner {
            parts,
            sinks,
            options: DulyOptions {
                levels: from.levels,
                limits: from.limits,
                handlers: from.handlers,
                lease: from.lease,
                grace: from.grace,
                deliver: from.deliver,
            },
            receipt_cache: ReceiptCache::default(),
            handlers: Mutex::default(),
            lifecycle: Lifecycle::new([driver, listener].into_iter().chain(expiry).collect()),
            random: Mutex::new(Random::new(seed ^ 0x6475_6C79)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a message. Once this returns `Ok`, it is as durable as the store can make it.
    ///
    /// If the store does not answer, the message may have been accepted: [`Error::Unanswered`] has its id, and a second
    /// send with that id is the same message. Cancel safety: dropped midway, it may have been accepted as well; set an
    /// id before ([`new_id`](Self::new_id), or your own) to be able to repeat it.
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
        let insert = self.prepare_insert(now, message)?;
        let mut answers = self.insert(now, vec![insert]).await?;
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Sends many messages at once; one result each, in order. Not atomic. Cancel safety: dropped midway, any of them
    /// may have been accepted.
    pub async fn send_batch(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Vec<Result<Accepted, Error>> {
        let now = self.inner.parts.clock.now();
        let max = self.inner.options.limits.batch_max;
        let (mut inserts, mut places, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (place, message) in messages.into_iter().enumerate() {
            let checked = if place < max {
                self.check_open().and_then(|()| self.prepare_insert(now, message))
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

    /// A unique message id, for callers that must know it before the send.
    pub fn new_id(&self) -> MessageId {
        self.generate_id(self.inner.parts.clock.now())
    }

    fn generate_id(&self, now: Now) -> MessageId {
        MessageId::generate(now.wall(), u128::from(self.random_u64()) << 64 | u128::from(self.random_u64()))
    }

    /// Validates a message as [`send`](Self::send) does, with its id and due time, without sending it: for an outbox
    /// row that your own transaction writes (module `outbox`, feature `sql`).
    pub fn prepare(&self, message: Message) -> Result<StoredMessage, Error> {
        self.check_accepting()?;
        Ok(self.prepare_insert(self.inner.parts.clock.now(), message)?.message)
    }

    fn prepare_insert(&self, now: Now, message: Message) -> Result<Insert, Error> {
        let inner = &*self.inner;
        let insert = message
            .into_insert(now, &inner.options.levels, &inner.options.limits, || self.generate_id(now))?;
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

    pub(crate) fn random_u64(&self) -> u64 {
        self.inner.random.lock().unwrap_or_else(PoisonError::into_inner).draw()
    }

    async fn insert(&self, now: Now, mut batch: Vec<Insert>) -> Result<Vec<Result<Accepted, Error>>, Error> {
        let sent: Vec<_> = batch
            .iter()
            .map(|insert| (insert.message.id.clone(), insert.message.lane(), insert.message.due))
            .collect();
        let EngineHandles { events, spans, .. } = &self.inner.parts;
        let store = self.store()?;
        let span = spans.accept(&mut batch, self.inner.options.limits.properties_max);
        let call = events.monitor.begin(CallKind::Insert, now.mono());
        let inserted = Spans::run_insert(span, store.insert(now, batch)).await;
        drop(call);
        let results = match events.observe(StoreCall::Insert, now, inserted) {
            Ok(results) => results,
            Err(error) if error.is_maybe_done() => {
                let unanswered = |(id, _, _): (MessageId, Lane, Timestamp)| {
                    Err(Error::Unanswered { id, error: error.clone() })
                };
                return Ok(sent.into_iter().map(unanswered).collect());
            }
            Err(error) => return Err(error.into()),
        };
        let answer = |((id, lane, due), inserted): ((MessageId, Lane, Timestamp), Inserted)| match inserted {
            Inserted::Accepted => {
                self.record_accepted(now, &id, lane, due);
                Ok(Accepted { id, due, state: State::Pending, duplicate: false, time_kept: false })
            }
            Inserted::Duplicate { due: first, state } => {
                add(&events.counters.messages.duplicates, 1);
                Ok(Accepted { id, due: first, state, duplicate: true, time_kept: first != due })
            }
            Inserted::Conflict => Err(Error::IdConflict(id)),
        };
        Ok(sent.into_iter().zip(results).map(answer).collect())
    }

    fn record_accepted(&self, now: Now, id: &MessageId, lane: Lane, due: Timestamp) {
        let events = &self.inner.parts.events;
        add(&events.counters.messages.accepted, 1);
        if events.has_subscribers() {
            events.publish(Event::Accepted { id: id.clone(), lane: lane.clone(), due });
        }
        if due <= now.wall().saturating_add(HINT_AHEAD) {
            self.inner.parts.hints.push(lane, due);
        }
    }

    /// Subscribes to events from now on. A slow subscriber loses the oldest events and never slows Duly.
    pub fn events(&self) -> Events {
        self.inner.parts.events.subscribe()
    }

    /// Counts and lateness of this process.
    pub fn stats(&self) -> Stats {
        self.inner.parts.events.counters.stats()
    }

    /// All metrics of this process: counts, and lateness and call times per lane.
    pub fn metrics(&self) -> Metrics {
        let parts = &self.inner.parts;
        parts.events.counters.metrics(parts.store.metrics())
    }

    /// The nodes that share the store, including this one, by name. Empty if only this process uses it.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, Error> {
        Ok(self.store()?.nodes().await?)
    }

    /// The shards of a shared store, by number, with their owners and their oldest ready messages. Empty if only this
    /// process uses the store.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn shards(&self) -> Result<Vec<ShardStatus>, Error> {
        let parts = &self.inner.parts;
        Ok(self.store()?.shards(parts.clock.now()).await?)
    }

    /// Names of the lanes that other nodes serve and this one does not.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn served_elsewhere(&self) -> Result<BTreeSet<String>, Error> {
        let (this, others): (Vec<_>, Vec<_>) = self.nodes().await?.into_iter().partition(|node| node.this);
        let own: BTreeSet<String> = this.into_iter().flat_map(|node| node.lanes).collect();
        Ok(others.into_iter().flat_map(|node| node.lanes).filter(|lane| !own.contains(lane)).collect())
    }

    /// The current time of this Duly's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.parts.clock.now().wall()
    }

    /// The due time of a message with this delay, sent now: the first whole millisecond that is not early.
    pub fn due_after(&self, delay: Duration) -> Timestamp {
        after(self.inner.parts.clock.now(), delay)
    }

    /// The latest due time that is accepted now.
    pub fn due_max(&self) -> Timestamp {
        self.due_after(self.inner.options.limits.delay_max)
    }

    /// Its clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.parts.clock
    }

    /// Its sinks by name, whether this process delivers to them or not.
    pub fn sinks(&self) -> Vec<&SinkName> {
        self.inner.sinks.keys().collect()
    }

    pub(crate) fn handlers(&self) -> MutexGuard<'_, HashMap<Topic, RegisteredHandler>> {
        self.inner.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if no new work is accepted.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.lifecycle.closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            self.check_usable()
        }
    }

    /// The same for calls that need neither the store nor a runtime.
    pub(crate) fn check_accepting(&self) -> Result<(), Error> {
        if self.inner.lifecycle.closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            self.check_alive()
        }
    }

    /// Fails if delivery has stopped.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        self.inner.parts.liveness.check()
    }

    /// Fails once the shutdown is complete. Until then running work may still be settled.
    fn check_usable(&self) -> Result<(), Error> {
        if self.inner.lifecycle.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        check_runtime()?;
        self.check_alive()
    }

    /// The store, unless delivery has stopped or the shutdown is complete.
    pub(crate) fn store(&self) -> Result<&dyn Store, Error> {
        self.check_usable()?;
        Ok(&*self.inner.parts.store)
    }
}

impl std::fmt::Debug for Duly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duly").field("sinks", &self.sinks()).finish_non_exhaustive()
    }
}
