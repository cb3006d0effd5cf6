//! Listening: entries of a topic, handed to a handler.

mod hand;
mod handler;
mod notice;
mod ordered;
mod reading;
mod reclaiming;
mod recovery;
mod retrying;
mod running;
mod tending;
mod work;

use std::{sync::Arc, time::Duration};

use crate::{
    DeadLetterPolicy, Entry, Error, RedisMq, Retry, Settings, StartFrom, Trim, keys::Keys,
    settings::check_event,
};

use self::notice::Notices;
pub(crate) use self::running::Stopper;
pub use self::{
    handler::{Handler, IntoHandler, Verdicts},
    notice::{Lost, Stalled, Undecodable},
    running::Listener,
};

/// Whether an entry is wanted.
type Filter = Arc<dyn Fn(&Entry<()>) -> bool + Send + Sync>;
/// What an entry is ordered by, if it is.
type KeyOf = Arc<dyn Fn(&Entry<()>) -> Option<Vec<u8>> + Send + Sync>;

/// A listener, before it [starts](Self::start). What is not said here is as in the [`Settings`].
#[must_use = "a listener hears nothing until it is started"]
#[derive(Clone)]
pub struct Subscription {
    mq: RedisMq,
    topic: String,
    of_dead_letters: bool,
    settings: Settings,
    consumer: String,
    handler: Handler,
    filter: Option<Filter>,
    ordered: Option<KeyOf>,
    notices: Notices,
}

impl RedisMq {
    /// Hands every entry of the topic to `handler`, by one process of the [group](Settings::group) each. Begins with
    /// [`start`](Subscription::start).
    ///
    /// What the handler answers with `Ok` is done. If it answers with an error, panics or takes too long, that is counted and the
    /// entry is tried again [later](Settings::retry), and in the end it is a dead letter; the others go on meanwhile.
    pub fn listener<K>(&self, event: impl Into<String>, handler: impl IntoHandler<K>) -> Subscription {
        let group = self.inner.settings.group.clone();
        self.subscribe(event, group, self.inner.consumer.clone(), handler)
    }

    /// The same for a group and a consumer of that name. The consumer is this process's name in the group, which no other has at
    /// the same time.
    pub fn subscribe<K>(
        &self,
        topic: impl Into<String>,
        group: impl Into<String>,
        consumer: impl Into<String>,
        handler: impl IntoHandler<K>,
    ) -> Subscription {
        Subscription {
            mq: self.clone(),
            topic: topic.into(),
            of_dead_letters: false,
            settings: Settings { group: group.into(), ..self.inner.settings.clone() },
            consumer: consumer.into(),
            handler: handler.into_handler(),
            filter: None,
            ordered: None,
            notices: Notices::default(),
        }
    }
}

impl Subscription {
    /// The group, instead of the one in the settings.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.settings.group = group.into();
        self
    }

    /// The name in the group.
    pub fn consumer(mut self, consumer: impl Into<String>) -> Self {
        self.consumer = consumer.into();
        self
    }

    /// Calls of the handler that run at the same time.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.settings.concurrency = calls;
        self
    }

    /// The most entries that a handler of batches is given at once.
    pub fn batch(mut self, entries: usize) -> Self {
        self.settings.batch = entries;
        self
    }

    /// How long a call of the handler may take.
    pub fn processing_timeout(mut self, limit: Duration) -> Self {
        self.settings.processing_timeout = limit;
        self
    }

    /// How often an entry is tried, and how long after a failure.
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.settings.retry = retry.into();
        self
    }

    /// How often an entry is tried in all.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.retry.attempts = attempts;
        self
    }

    /// Where entries go that are given up.
    pub fn dead_letters(mut self, policy: DeadLetterPolicy) -> Self {
        self.settings.dead_letters = policy;
        self
    }

    /// How the topic's streams are kept short.
    pub fn trim(mut self, trim: Trim) -> Self {
        self.settings.trim = trim;
        self
    }

    /// Where the group begins if it is new.
    pub fn from(mut self, from: StartFrom) -> Self {
        self.settings.from = from;
        self
    }

    /// Only what `wanted` says yes to is handled; the rest is acknowledged, as others may want it. It sees the
    /// [fields](Entry::field) and can [read the value](Entry::json). If it panics, that is a failure of the handler.
    pub fn filter(mut self, wanted: impl Fn(&Entry<()>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(wanted));
        self
    }

    /// Entries for which `key` answers the same are handled one after the other, in the order of the stream, also when one of them is
    /// tried again; others at the same time, and those without a key in any order. One consumer of the group works at a time and the
    /// others stand by, so every consumer of the group must ask for this. Whatever a lost connection or a process that died leaves
    /// pending is found, and handled before what stands behind it.
    ///
    /// A process that is stopped for longer than its lease (the processing timeout and a quarter) and then goes on may still
    /// finish the entry that it had in hand while the next one works.
    pub fn ordered_by<B: Into<Vec<u8>>>(
        mut self,
        key: impl Fn(&Entry<()>) -> Option<B> + Send + Sync + 'static,
    ) -> Self {
        self.ordered = Some(Arc::new(move |entry| key(entry).map(Into::into)));
        self
    }

    /// The same, by the value of a field.
    pub fn ordered_by_field(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.ordered_by(move |entry| entry.field(&name).map(<[u8]>::to_vec))
    }

    /// Is told of every entry that holds no value of the handler's type, besides the log. Then it becomes a dead letter at once: no
    /// try could change it. If `tell` panics, it is told of it again later.
    pub fn on_undecodable(mut self, tell: impl Fn(&Undecodable) + Send + Sync + 'static) -> Self {
        self.notices.undecodable = Some(Arc::new(tell));
        self
    }

    /// Is told of entries that were trimmed away before they were handled, besides the log.
    pub fn on_lost(mut self, tell: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.notices.lost = Some(Arc::new(tell));
        self
    }

    /// Is told, once a minute at most, of a group that falls behind or keeps the stream from being trimmed, besides the log.
    pub fn on_stalled(mut self, tell: impl Fn(&Stalled) + Send + Sync + 'static) -> Self {
        self.notices.stalled = Some(Arc::new(tell));
        self
    }

    /// To the topic's dead letters instead of the topic. They stay where they are, whatever becomes of them here.
    pub(crate) fn of_dead_letters(mut self) -> Self {
        self.of_dead_letters = true;
        self.settings.trim = Trim::default();
        self.settings.retry.attempts = 0;
        self.settings.dead_letters.keep = false;
        self
    }

    /// Makes the group if it is missing, and begins. From here on it goes on by itself, also if Redis is away for a while,
    /// until it is [stopped](Listener::stop) or the [`RedisMq`] is. There is one listener per topic, group and consumer.
    ///
    /// Cancel safety: dropped midway, nothing listens; the group may have been made.
    pub async fn start(self) -> Result<Listener, Error> {
        self.mq.check_open()?;
        check_event(&self.topic)?;
        self.settings.check()?;
        if self.consumer.is_empty() {
            return Err(Error::Invalid("a group and a consumer have names that are not empty".into()));
        }
        if self.ordered.is_some() && self.handler.takes_many {
            return Err(Error::Invalid("a handler of batches cannot keep the order of keys".into()));
        }
        running::start(self).await
    }

    fn keys(&self) -> Keys {
        let keys = Keys::new(&self.topic, &self.mq.inner.address);
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
