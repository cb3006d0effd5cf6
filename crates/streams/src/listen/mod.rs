//! Listeners: they read the entries of a topic and hand them to a handler.

mod acker;
mod callbacks;
mod handler;
mod heartbeat;
mod in_flight;
mod janitor;
mod key_queues;
mod leader;
mod listener;
mod ordered;
mod parked;
mod processor;
mod reader;
mod reclaimer;
mod recovery;
mod retrier;
mod settle;

use std::{sync::Arc, time::Duration};

use crate::{
    DeadLetterPolicy, Entry, Error, Retry, Settings, StartFrom, Streams, Trim, keys::Keys,
    settings::check_event,
};

use self::callbacks::Callbacks;
pub(crate) use self::processor::panic_message;
pub use self::{
    callbacks::{EntriesLost, GroupStalled, UndecodableEntry},
    handler::{Handler, IntoHandler, Verdicts},
    listener::Listener,
};

/// Whether the handler is called with an entry.
type Filter = Arc<dyn Fn(&Entry<()>) -> bool + Send + Sync>;
/// The ordering key of an entry, if it has one.
type OrderingKey = Arc<dyn Fn(&Entry<()>) -> Option<Vec<u8>> + Send + Sync>;

/// A listener before it is [started](Self::start). It uses the [`Settings`] except where a method here overrides them.
#[must_use = "a listener receives nothing until it is started"]
#[derive(Clone)]
pub struct Subscription {
    streams: Streams,
    topic: String,
    of_dead_letters: bool,
    settings: Settings,
    consumer: String,
    handler: Handler,
    filter: Option<Filter>,
    ordered: Option<OrderingKey>,
    callbacks: Callbacks,
}

impl Streams {
    /// Builds a listener that hands every entry of the topic to `handler`, once per [group](Settings::group). It runs
    /// after [`start`](Subscription::start).
    ///
    /// An entry for which the handler returns `Ok` is acknowledged. If it returns an error, panics or exceeds the
    /// processing timeout, the failure counts and the entry is [retried](Settings::retry), and after the last attempt
    /// it is a dead letter. Other entries go on meanwhile.
    pub fn listener<K>(&self, event: impl Into<String>, handler: impl IntoHandler<K>) -> Subscription {
        let group = self.inner.settings.group.clone();
        self.subscribe(event, group, self.inner.consumer.clone(), handler)
    }

    /// The same for this group and consumer. The consumer is the name of this process in the group; no other process
    /// may use it at the same time.
    pub fn subscribe<K>(
        &self,
        topic: impl Into<String>,
        group: impl Into<String>,
        consumer: impl Into<String>,
        handler: impl IntoHandler<K>,
    ) -> Subscription {
        Subscription {
            streams: self.clone(),
            topic: topic.into(),
            of_dead_letters: false,
            settings: Settings { group: group.into(), ..self.inner.settings.clone() },
            consumer: consumer.into(),
            handler: handler.into_handler(),
            filter: None,
            ordered: None,
            callbacks: Callbacks::default(),
        }
    }
}

impl Subscription {
    /// Sets the group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.settings.group = group.into();
        self
    }

    /// Sets the consumer name.
    pub fn consumer(mut self, consumer: impl Into<String>) -> Self {
        self.consumer = consumer.into();
        self
    }

    /// Sets how many handler calls run at the same time.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.settings.concurrency = calls;
        self
    }

    /// Sets the largest batch.
    pub fn batch(mut self, entries: usize) -> Self {
        self.settings.batch = entries;
        self
    }

    /// Sets how long a handler call may take.
    pub fn processing_timeout(mut self, limit: Duration) -> Self {
        self.settings.processing_timeout = limit;
        self
    }

    /// Sets the number of attempts and the waits between them.
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.settings.retry = retry.into();
        self
    }

    /// Sets the total number of attempts.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.retry.attempts = attempts;
        self
    }

    /// Sets what happens to entries whose attempts are used up.
    pub fn dead_letters(mut self, policy: DeadLetterPolicy) -> Self {
        self.settings.dead_letters = policy;
        self
    }

    /// Sets how the streams of the topic are trimmed.
    pub fn trim(mut self, trim: Trim) -> Self {
        self.settings.trim = trim;
        self
    }

    /// Sets where a new group begins.
    pub fn from(mut self, from: StartFrom) -> Self {
        self.settings.from = from;
        self
    }

    /// Calls the handler only with entries that match; the rest is acknowledged. The filter sees the
    /// [fields](Entry::field) and can [decode the value](Entry::json). A panic of the filter counts as a failure of the
    /// handler.
    pub fn filter(mut self, matches: impl Fn(&Entry<()>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(matches));
        self
    }

    /// Handles entries of the same key one after the other, in stream order, also when one of them is retried. Entries
    /// of different keys run at the same time; entries without a key are not ordered. One consumer of the group leads
    /// and the others stand by, so every consumer of the group must use this. Entries that a lost connection or a dead
    /// process left pending are handled before later ones.
    ///
    /// A key that fails, waits for its retry or is slow stops no other key: entries behind it stay pending in Redis,
    /// without a place in memory. If there are 10,000 of them, the listener reads nothing new until some are handled.
    ///
    /// A process that is paused for longer than its lease (1.25 × the processing timeout) may still finish the entry it
    /// has in flight while the next leader works.
    pub fn ordered_by<B: Into<Vec<u8>>>(
        mut self,
        key: impl Fn(&Entry<()>) -> Option<B> + Send + Sync + 'static,
    ) -> Self {
        self.ordered = Some(Arc::new(move |entry| key(entry).map(Into::into)));
        self
    }

    /// Orders entries by the value of a field.
    pub fn ordered_by_field(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.ordered_by(move |entry| entry.field(&name).map(<[u8]>::to_vec))
    }

    /// Sets a callback for entries that do not decode to the handler's type. Such an entry becomes a dead letter
    /// without a retry. If the callback panics, it is called again later.
    pub fn on_undecodable(mut self, callback: impl Fn(&UndecodableEntry) + Send + Sync + 'static) -> Self {
        self.callbacks.undecodable = Some(Arc::new(callback));
        self
    }

    /// Sets a callback for entries that were trimmed before they were handled.
    pub fn on_lost(mut self, callback: impl Fn(&EntriesLost) + Send + Sync + 'static) -> Self {
        self.callbacks.lost = Some(Arc::new(callback));
        self
    }

    /// Sets a callback for a group that falls behind or prevents trimming, called at most once a minute per group.
    pub fn on_stalled(mut self, callback: impl Fn(&GroupStalled) + Send + Sync + 'static) -> Self {
        self.callbacks.stalled = Some(Arc::new(callback));
        self
    }

    /// Listens to the dead letters of the topic instead. They stay in their stream whatever the handler returns.
    pub(crate) fn of_dead_letters(mut self) -> Self {
        self.of_dead_letters = true;
        self.settings.trim = Trim::default();
        self.settings.retry.attempts = 0;
        self.settings.dead_letters.keep = false;
        self
    }

    /// Creates the group if it is missing, and starts. The listener keeps running while Redis is unreachable, until it
    /// is [stopped](Listener::stop) or the [`Streams`] is shut down. There is one listener per topic, group and
    /// consumer.
    ///
    /// Cancel safety: dropped midway, no listener runs; the group may have been created.
    pub async fn start(self) -> Result<Listener, Error> {
        self.streams.check_open()?;
        check_event(&self.topic)?;
        self.settings.check()?;
        if self.consumer.is_empty() {
            return Err(Error::Invalid("a group and a consumer have names that are not empty".into()));
        }
        if self.ordered.is_some() && self.handler.takes_batches {
            return Err(Error::Invalid("a handler of batches cannot keep the order of keys".into()));
        }
        listener::start(self).await
    }

    fn keys(&self) -> Keys {
        let keys = Keys::new(&self.topic, &self.streams.inner.address);
        if self.of_dead_letters { keys.of_dead_letters() } else { keys }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("topic", &self.topic)
            .field("group", &self.settings.group)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}
