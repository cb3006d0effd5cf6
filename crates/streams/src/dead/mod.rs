//! Dead letters: entries that were given up, kept until they are replayed or removed.

mod replay;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis_link::Link;

use crate::{
    Entry, EntryId, Error, IntoHandler, Priority, Streams, Subscription, entry::Raw, keys::Keys,
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

/// Entries read with one call.
const PAGE_SIZE: usize = 100;

/// An entry that was given up. Its stream has the fields of the entry, and `duly-dead-reason`, `duly-dead-at`
/// (milliseconds since 1970), `duly-dead-attempts`, `duly-dead-group`, `duly-dead-consumer`, `duly-dead-stream` and
/// `duly-dead-id`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The entry in the stream of dead letters, with all its fields.
    pub entry: Entry<()>,
    /// Why it was given up.
    pub reason: String,
    /// When, by Redis's clock.
    pub at: SystemTime,
    /// Attempts.
    pub attempts: u32,
    /// The group that gave it up.
    pub group: String,
    /// The consumer that had it.
    pub consumer: String,
    /// The stream that it was in.
    pub stream: String,
    /// Its id in that stream.
    pub original_id: EntryId,
}

impl<T> Entry<T> {
    /// The entry as a dead letter, if it is one.
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

/// The dead letters of one topic. Created by [`Streams::dead_letters`].
#[derive(Clone)]
pub struct DeadLetters {
    streams: Streams,
    link: Link,
    topic: String,
    keys: Keys,
}

impl Streams {
    /// The dead letters of a topic, from all its groups: the stream `<topic>_dlq`, on a Cluster `{<topic>}_dlq`.
    pub fn dead_letters(&self, topic: &str) -> Result<DeadLetters, Error> {
        self.check_open()?;
        check_event(topic)?;
        let keys = Keys::new(topic, &self.inner.address);
        Ok(DeadLetters {
            streams: self.clone(),
            link: self.inner.link.clone(),
            topic: topic.to_owned(),
            keys,
        })
    }
}

impl DeadLetters {
    /// The name of their stream.
    pub fn stream(&self) -> String {
        self.keys.dead()
    }

    /// The number of dead letters.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn len(&self) -> Result<u64, Error> {
        self.streams.check_usable()?;
        let answer = redis::cmd("XLEN").arg(self.stream()).query_async(&mut self.link.clone()).await;
        answer.map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Whether there are no dead letters.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Lists dead letters, oldest first, after the id `after`, at most `count`.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn list(&self, after: Option<&EntryId>, count: usize) -> Result<Vec<DeadLetter>, Error> {
        let from = after.map_or_else(|| "-".into(), |after| format!("({after}"));
        let entries = self.range(&from, "+", count).await?;
        Ok(entries.iter().filter_map(Entry::dead_letter).collect())
    }

    /// The dead letter of this id.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get(&self, id: impl AsRef<str>) -> Result<Option<DeadLetter>, Error> {
        let id = id.as_ref();
        let found = self.range(id, id, 1).await?;
        // Redis takes an incomplete id for a range.
        Ok(found.first().filter(|found| found.id.as_str() == id).and_then(Entry::dead_letter))
    }

    async fn range(&self, from: &str, to: &str, count: usize) -> Result<Vec<Raw>, Error> {
        self.streams.check_usable()?;
        let mut range = redis::cmd("XRANGE");
        range.arg(self.stream()).arg(from).arg(to).arg("COUNT").arg(count);
        let reply: Vec<(String, Vec<Vec<u8>>)> = range
            .query_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.link, &error))?;
        Ok(reply.into_iter().map(|(id, fields)| Raw::new(id, fields)).collect())
    }

    /// Deletes a dead letter.
    ///
    /// Cancel safety: dropped midway, it may be removed or not; call it again: `false` if it was.
    pub async fn remove(&self, id: impl AsRef<str>) -> Result<bool, Error> {
        self.streams.check_usable()?;
        let mut remove = redis::cmd("XDEL");
        remove.arg(self.stream()).arg(id.as_ref());
        remove.query_async(&mut self.link.clone()).await.map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Builds a listener of the dead letters, decoded like entries of the topic; [`Entry::dead_letter`] has the reason.
    /// The dead letters stay until they are replayed or removed. A failed handler is retried without limit.
    pub fn listener<K>(&self, group: impl Into<String>, handler: impl IntoHandler<K>) -> Subscription {
        let consumer = self.streams.inner.consumer.clone();
        self.streams.subscribe(self.topic.clone(), group, consumer, handler).of_dead_letters()
    }

    /// Appends a message to the dead letters that was given up elsewhere, such as before it was sent.
    ///
    /// Cancel safety: dropped midway, it may stand among the dead letters or not; sent again, it may stand there twice.
    pub async fn send(&self, message: &crate::Message, reason: &str) -> Result<EntryId, Error> {
        self.streams.check_usable()?;
        let mut append = redis::cmd("XADD");
        append.arg(self.stream()).arg("*");
        for (name, value) in &message.fields {
            append.arg(name).arg(value);
        }
        append.arg(crate::entry::DULY_ID);
        let own = message.id.clone().unwrap_or_else(|| self.streams.inner.next_id());
        append.arg(own.as_str());
        append.arg(REASON).arg(reason).arg(AT).arg(crate::clock::now_ms()).arg(ATTEMPTS).arg(0);
        append.arg(GROUP).arg("").arg(CONSUMER).arg(&self.streams.inner.consumer);
        append.arg(STREAM).arg(self.keys.stream(message.priority)).arg(ID).arg("0-0");
        let id = append.query_async::<String>(&mut self.link.clone()).await;
        id.map(EntryId::new).map_err(|error| Error::from_link(&self.link, &error).with_message_id(&own))
    }

    /// The stream of this name, if it is one of the topic; otherwise the normal one.
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
