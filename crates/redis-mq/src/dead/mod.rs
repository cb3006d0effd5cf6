//! Dead letters: what was given up, kept until somebody has seen to it.

mod replay;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis_link::Link;

use crate::{
    Entry, EntryId, Error, IntoHandler, Priority, RedisMq, Subscription, entry::Raw, keys::Keys,
    settings::check_event,
};

pub use replay::{Replay, ReplayFor, Replayed};

/// The fields of a dead letter beside those of the entry.
const REASON: &str = "duly-dead-reason";
const AT: &str = "duly-dead-at";
const ATTEMPTS: &str = "duly-dead-attempts";
const GROUP: &str = "duly-dead-group";
const CONSUMER: &str = "duly-dead-consumer";
const STREAM: &str = "duly-dead-stream";
const ID: &str = "duly-dead-id";

/// How many are read at once.
const TOGETHER: usize = 100;

/// An entry that was given up. In the stream of dead letters it has the fields that it had, and beside them `duly-dead-reason`,
/// `duly-dead-at` (milliseconds since 1970), `duly-dead-attempts`, `duly-dead-group`, `duly-dead-consumer`, `duly-dead-stream` and
/// `duly-dead-id`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Where it stands among the dead letters, with all its fields.
    pub entry: Entry<()>,
    /// Why it was given up.
    pub reason: String,
    /// When, by Redis's clock.
    pub at: SystemTime,
    /// How often it was tried.
    pub attempts: u32,
    /// The group that gave it up.
    pub group: String,
    /// The consumer that had it.
    pub consumer: String,
    /// The stream that it comes from.
    pub stream: String,
    /// Where it stood there.
    pub original_id: EntryId,
}

impl<T> Entry<T> {
    /// What is known of it as a dead letter, if it is one.
    pub fn dead_letter(&self) -> Option<DeadLetter> {
        let text = |name| self.text(name).map(str::to_owned);
        let at = Duration::from_millis(self.text(AT)?.parse().ok()?);
        Some(DeadLetter {
            reason: text(REASON)?,
            at: UNIX_EPOCH + at,
            attempts: self.text(ATTEMPTS)?.parse().ok()?,
            group: text(GROUP)?,
            consumer: text(CONSUMER)?,
            stream: text(STREAM)?,
            original_id: EntryId::new(text(ID)?),
            entry: Entry {
                id: self.id.clone(),
                value: (),
                fields: self.fields.clone(),
                attempt: self.attempt,
            },
        })
    }
}

/// The dead letters of one topic. Made by [`RedisMq::dead_letters`].
#[derive(Clone)]
pub struct DeadLetters {
    mq: RedisMq,
    link: Link,
    topic: String,
    keys: Keys,
}

impl RedisMq {
    /// The dead letters of a topic, of all its groups: in the stream `<topic>_dlq`, on a Cluster `{<topic>}_dlq`.
    pub fn dead_letters(&self, topic: &str) -> Result<DeadLetters, Error> {
        self.check_open()?;
        check_event(topic)?;
        let keys = Keys::new(topic, &self.inner.address);
        Ok(DeadLetters { mq: self.clone(), link: self.inner.link.clone(), topic: topic.to_owned(), keys })
    }
}

impl DeadLetters {
    /// The name of their stream.
    pub fn stream(&self) -> String {
        self.keys.dead()
    }

    /// How many there are.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        self.mq.check_usable()?;
        let answer = redis::cmd("XLEN").arg(self.stream()).query_async(&mut self.link.clone()).await;
        answer.map_err(|error| Error::over(&self.link, &error))
    }

    /// Whether there are none.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// The oldest ones after the dead letter `after`, at most so many.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn list(&self, after: Option<&EntryId>, count: usize) -> Result<Vec<DeadLetter>, Error> {
        let from = after.map_or_else(|| "-".into(), |after| format!("({after}"));
        let entries = self.range(&from, "+", count).await?;
        Ok(entries.iter().filter_map(Entry::dead_letter).collect())
    }

    /// The one that stands there.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get(&self, id: impl AsRef<str>) -> Result<Option<DeadLetter>, Error> {
        let id = id.as_ref();
        let found = self.range(id, id, 1).await?;
        // Redis takes a part of an id for a range.
        Ok(found.first().filter(|found| found.id.as_str() == id).and_then(Entry::dead_letter))
    }

    async fn range(&self, from: &str, to: &str, count: usize) -> Result<Vec<Raw>, Error> {
        self.mq.check_usable()?;
        let mut range = redis::cmd("XRANGE");
        range.arg(self.stream()).arg(from).arg(to).arg("COUNT").arg(count);
        let told: Vec<(String, Vec<Vec<u8>>)> = range
            .query_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::over(&self.link, &error))?;
        Ok(told.into_iter().map(|(id, fields)| Raw::new(id, fields)).collect())
    }

    /// Removes one for good.
    ///
    /// Cancel safety: dropped midway, it may be removed or not; call it again: `false` if it was.
    pub async fn remove(&self, id: impl AsRef<str>) -> Result<bool, Error> {
        self.mq.check_usable()?;
        let mut remove = redis::cmd("XDEL");
        remove.arg(self.stream()).arg(id.as_ref());
        remove.query_async(&mut self.link.clone()).await.map_err(|error| Error::over(&self.link, &error))
    }

    /// Hands each of them to `handler`, typed as those of the topic are: [`Entry::dead_letter`] tells what happened to it. They stay
    /// where they are until they are replayed or removed. What fails here is tried for ever.
    pub fn listener<K>(&self, group: impl Into<String>, handler: impl IntoHandler<K>) -> Subscription {
        let consumer = self.mq.inner.consumer.clone();
        self.mq.subscribe(self.topic.clone(), group, consumer, handler).of_dead_letters()
    }

    /// Appends an entry to the dead letters that was given up elsewhere, e.g. before it was sent.
    ///
    /// Cancel safety: dropped midway, it may stand among the dead letters or not; sent again, it may stand there twice.
    pub async fn send(&self, message: &crate::Message, reason: &str) -> Result<EntryId, Error> {
        self.mq.check_usable()?;
        let mut append = redis::cmd("XADD");
        append.arg(self.stream()).arg("*");
        for (name, value) in &message.fields {
            append.arg(name).arg(value);
        }
        append.arg(crate::entry::DULY_ID);
        let own = message.id.clone().unwrap_or_else(|| self.mq.inner.next_id());
        append.arg(own.as_str());
        append.arg(REASON).arg(reason).arg(AT).arg(crate::clock::now_ms()).arg(ATTEMPTS).arg(0);
        append.arg(GROUP).arg("").arg(CONSUMER).arg(&self.mq.inner.consumer);
        append.arg(STREAM).arg(self.keys.stream(message.priority)).arg(ID).arg("0-0");
        let id = append.query_async::<String>(&mut self.link.clone()).await;
        id.map(EntryId::new).map_err(|error| Error::over(&self.link, &error).of_message(&own))
    }

    /// Of the topic's streams, the one that has this name.
    fn origin(&self, stream: &str) -> String {
        let known = Priority::ALL.map(|priority| self.keys.stream(priority));
        known.into_iter().find(|known| known == stream).unwrap_or_else(|| self.keys.stream(Priority::Normal))
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").field("stream", &self.stream()).finish_non_exhaustive()
    }
}
