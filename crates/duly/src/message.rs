//! A message as you write it.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Body, Invalid, Key, Limits, MessageId, Now, Priority, Properties, RetryOverride, SinkName, Tag,
    Timestamp, Topic, store::Insert,
};

use crate::{IntoMessageId, Levels};

/// A message to send, written down step by step and checked when it is sent.
///
/// ```
/// use duly::{Message, minutes};
///
/// # fn main() -> Result<(), duly::Error> {
/// let message = Message::to("orders/unpaid")    // sink `orders`, topic `unpaid`
///     .json(&serde_json::json!({"order": 42}))?
///     .after(minutes(15))
///     .id("order-42")
///     .property("tenant", "a");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a message does nothing until it is sent"]
pub struct Message {
    /// Without it, the topic may begin with one and a slash.
    sink: Option<String>,
    topic: String,
    id: Option<Result<MessageId, Invalid>>,
    tag: Option<String>,
    key: Option<String>,
    body: Body,
    properties: Vec<(String, String)>,
    when: When,
    priority: u8,
    max_lateness: Option<Duration>,
    retry: Option<RetryOverride>,
}

#[derive(Debug, Clone)]
enum When {
    After(Duration),
    At(Timestamp),
    Level(String),
}

impl Message {
    /// A message to `sink/topic`, or to a topic of the built-in queue if there is no slash. Due at once, unless
    /// told otherwise.
    pub fn to(target: impl Into<String>) -> Self {
        Self {
            sink: None,
            topic: target.into(),
            id: None,
            tag: None,
            key: None,
            body: Body::default(),
            properties: Vec::new(),
            when: When::After(Duration::ZERO),
            priority: Priority::default().get(),
            max_lateness: None,
            retry: None,
        }
    }

    /// A message to the topic of a sink, whatever slashes the topic has.
    pub fn to_sink(sink: &str, topic: &str) -> Self {
        Self { sink: Some(sink.to_owned()), ..Self::to(topic) }
    }

    /// Its id, 1–128 of `A-Za-z0-9._:-`: sent again with the same content it is a duplicate. Without, Duly makes one.
    pub fn id(mut self, id: impl IntoMessageId) -> Self {
        self.id = Some(id.id());
        self
    }

    /// A body of JSON.
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> Result<Self, Invalid> {
        Ok(self.body(Body::json(value)?))
    }

    /// A body of text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.body(Body::text(text))
    }

    /// A body of any bytes.
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.body(Body::bytes(bytes))
    }

    /// Any body.
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Due after a delay, counted from when it is accepted and rounded up to the next millisecond.
    pub fn after(mut self, delay: Duration) -> Self {
        self.when = When::After(delay);
        self
    }

    /// Due at a time: a [`Timestamp`], or a [`SystemTime`](std::time::SystemTime) rounded up to the next millisecond.
    pub fn at(mut self, time: impl Into<Timestamp>) -> Self {
        self.when = When::At(time.into());
        self
    }

    /// Due after the delay of a named level.
    pub fn level(mut self, level: impl Into<String>) -> Self {
        self.when = When::Level(level.into());
        self
    }

    /// A tag: RocketMQ's tag, AMQP routing, a header elsewhere.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// A partition or ordering key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A property; it becomes a header of the target.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// 0–9, 4 unless told otherwise: who goes first among those due in the same millisecond.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Given up as `expired` if it is not delivered this long after its due time.
    pub fn max_lateness(mut self, span: Duration) -> Self {
        self.max_lateness = Some(span);
        self
    }

    /// Its own retries; what it leaves out is the lane's.
    pub fn retry(mut self, retry: RetryOverride) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Checks every field and decides the due time. `made` gives an id if it has none.
    pub(crate) fn accept(
        self,
        now: Now,
        levels: &Levels,
        limits: &Limits,
        made: impl FnOnce() -> MessageId,
    ) -> Result<Insert, Invalid> {
        let (sink, topic) = match (&self.sink, self.topic.split_once('/')) {
            (Some(sink), _) => (SinkName::parse(sink)?, Topic::parse(&self.topic)?),
            (None, Some((sink, topic))) => (SinkName::parse(sink)?, Topic::parse(topic)?),
            (None, None) => (SinkName::queue(), Topic::parse(&self.topic)?),
        };
        let due = match self.when {
            When::At(time) => time,
            When::After(delay) => after(now, delay),
            When::Level(name) => after(now, levels.delay(&name)?),
        };
        let id_is_generated = self.id.is_none();
        let id = self.id.unwrap_or_else(|| Ok(made()))?;
        let mut properties = Properties::default();
        for (name, value) in &self.properties {
            properties.set(name, value)?;
        }
        let message = duly_core::StoredMessage {
            tag: self.tag.as_deref().map(Tag::parse).transpose()?,
            key: self.key.as_deref().map(Key::parse).transpose()?,
            body: self.body,
            properties,
            priority: Priority::new(self.priority)?,
            max_lateness: self.max_lateness,
            retry: self.retry.map(Box::new),
            ..duly_core::StoredMessage::new(id, sink, topic, due)
        };
        // Where the delay runs from, so that one of exactly the limit is accepted.
        let latest = Timestamp::from_millis(now.latest_micros().div_ceil(1_000));
        message.check(latest, limits)?;
        Ok(Insert { id_is_generated, ..Insert::new(message) })
    }
}

/// The first whole millisecond that is not before `now` plus `delay`.
pub(crate) fn after(now: Now, delay: Duration) -> Timestamp {
    if delay.is_zero() {
        return now.wall();
    }
    // The delay runs from the latest that it may be now: what is not known of the time must not make it shorter.
    let latest = now.latest_micros();
    let past_the_millisecond = Duration::from_micros(latest % 1000);
    Timestamp::from_millis(latest / 1000).saturating_add(delay.saturating_add(past_the_millisecond))
}

#[cfg(test)]
mod tests {
    use super::*;
    use duly_core::Monotonic;

    fn accept(message: Message) -> Result<duly_core::StoredMessage, Invalid> {
        let now = Now::new(10_000_500, Monotonic::default());
        let made = || MessageId::made(now.wall(), 1);
        message.accept(now, &Levels::default(), &Limits::default(), made).map(|insert| insert.message)
    }

    #[test]
    fn the_target_splits_at_the_first_slash() {
        let message = accept(Message::to("orders/unpaid/eu")).unwrap();
        assert_eq!((message.sink.as_str(), message.topic.as_str()), ("orders", "unpaid/eu"));
        let message = accept(Message::to_sink("orders", "unpaid/eu")).unwrap();
        assert_eq!((message.sink.as_str(), message.topic.as_str()), ("orders", "unpaid/eu"));
        assert_eq!(accept(Message::to_sink("a/b", "c")).unwrap_err().code, "bad_sink");
        let message = accept(Message::to("unpaid")).unwrap();
        assert_eq!((message.sink.as_str(), message.topic.as_str()), ("queue", "unpaid"));
    }

    #[test]
    fn a_delay_is_never_shorter_than_written() {
        let due = |message| accept(message).unwrap().due.as_millis();
        assert_eq!(due(Message::to("a").after(Duration::from_millis(10))), 10_011);
        assert_eq!(due(Message::to("a").after(Duration::from_micros(500))), 10_001);
        assert_eq!(due(Message::to("a")), 10_000);
        assert_eq!(due(Message::to("a").level("P0")), 310_001);
    }

    #[test]
    fn every_field_is_checked_when_accepted() {
        let code = |message| accept(message).unwrap_err().code;
        assert_eq!(code(Message::to("")), "bad_topic");
        assert_eq!(code(Message::to("/x")), "bad_sink");
        assert_eq!(code(Message::to("a").id("no spaces")), "bad_id");
        assert_eq!(code(Message::to("a").priority(10)), "bad_priority");
        assert_eq!(code(Message::to("a").property("duly-id", "x")), "reserved_property");
        assert_eq!(code(Message::to("a").level("P7")), "unknown_level");
        assert_eq!(code(Message::to("a").after(Duration::MAX)), "too_far");
    }
}
