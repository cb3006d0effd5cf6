//! A message: what is to be delivered, where, and when.

use std::time::Duration;

use crate::{
    Body, ErrorCode, Invalid, Key, Lane, Limits, MessageId, Properties, RetryOverride, SinkName, Tag,
    Timestamp, Topic,
};

/// 0–9; among messages of one lane and one due millisecond the higher goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Checks the number.
    pub fn new(value: u8) -> Result<Self, Invalid> {
        if value > 9 {
            return Err(Invalid::new(
                ErrorCode::BadPriority,
                "priority",
                format!("a priority is 0 to 9, this one is {value}"),
            ));
        }
        Ok(Self(value))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(4)
    }
}

/// URLs with such a part are rewritten before they are sent.
fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// A message as accepted: every field checked, its due time decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its name, unique in one Duly.
    pub id: MessageId,
    /// Where it goes.
    pub sink: SinkName,
    /// The topic there.
    pub topic: Topic,
    /// Optional tag.
    pub tag: Option<Tag>,
    /// Optional partition or ordering key.
    pub key: Option<Key>,
    /// What it carries.
    pub body: Body,
    /// Headers of the target.
    pub properties: Properties,
    /// When it is due. A retry does not change it.
    pub due: Timestamp,
    /// Who goes first among equals.
    pub priority: Priority,
    /// If not delivered by `due` plus this, it is dead with the reason `expired`.
    pub max_lateness: Option<Duration>,
    /// What this message says about its own retries.
    pub retry: Option<Box<RetryOverride>>,
}

impl StoredMessage {
    /// A message with nothing but the necessary.
    pub fn new(id: MessageId, sink: SinkName, topic: Topic, due: Timestamp) -> Self {
        Self {
            id,
            sink,
            topic,
            tag: None,
            key: None,
            body: Body::default(),
            properties: Properties::default(),
            due,
            priority: Priority::default(),
            max_lateness: None,
            retry: None,
        }
    }

    /// The lane it travels in.
    pub fn lane(&self) -> Lane {
        Lane::of(&self.sink, &self.topic)
    }

    /// Whether `other` is the same message submitted again: time, priority, retry and the trace do not count.
    pub fn same_content(&self, other: &Self) -> bool {
        self.sink == other.sink
            && self.topic == other.topic
            && self.tag == other.tag
            && self.key == other.key
            && self.body == other.body
            && self.properties.of_content().eq(other.properties.of_content())
    }

    /// A hash of what [`same_content`](Self::same_content) compares, for stores that no longer have the body.
    pub fn content_hash(&self) -> u64 {
        // Each part is hashed with its length and folded in, so that parts cannot run into one another.
        let mut hash = 0u64;
        let mut part = |part: &[u8]| {
            let own = rapidhash::v3::rapidhash_v3(part) ^ part.len() as u64;
            hash = (hash.rotate_left(23) ^ own).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        part(self.sink.as_str().as_bytes());
        part(self.topic.as_str().as_bytes());
        part(self.tag.as_ref().map_or("", Tag::as_str).as_bytes());
        part(self.key.as_ref().map_or("", Key::as_str).as_bytes());
        for (name, value) in self.properties.of_content() {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(self.body.as_bytes());
        hash
    }

    /// Refuses what is larger than the limits allow, and what no URL could name. `now` is the latest that it may be.
    pub fn check(&self, now: Timestamp, limits: &Limits) -> Result<(), Invalid> {
        // Here and not where names are read: what was stored before must still be read.
        if is_dots(self.id.as_str()) {
            return Err(Invalid::new(ErrorCode::BadId, "id", "an id is not . or ..: no URL could name it"));
        }
        if is_dots(self.topic.as_str()) {
            return Err(Invalid::new(
                ErrorCode::BadTopic,
                "topic",
                "a topic is not . or ..: no URL could name it",
            ));
        }
        if self.body.len() > limits.body_bytes_max {
            let detail =
                format!("the body has {} bytes, the limit is {}", self.body.len(), limits.body_bytes_max);
            return Err(Invalid::new(ErrorCode::BodyTooLarge, "body", detail));
        }
        if self.properties.len() > limits.properties_max {
            let detail =
                format!("{} properties, the limit is {}", self.properties.len(), limits.properties_max);
            return Err(Invalid::new(ErrorCode::TooManyProperties, "properties", detail));
        }
        if self.due > now.saturating_add(limits.delay_max) {
            let detail = format!("due more than {} days from now", limits.delay_max.as_secs() / 86_400);
            return Err(Invalid::new(ErrorCode::TooFar, "deliver_at", detail));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, topic: &str) -> StoredMessage {
        let (id, topic) = (MessageId::parse(id).unwrap(), Topic::parse(topic).unwrap());
        StoredMessage::new(id, SinkName::queue(), topic, Timestamp::default())
    }

    #[test]
    fn names_that_no_url_can_hold_are_refused() {
        let check = |message: StoredMessage| message.check(Timestamp::default(), &Limits::default());
        for dots in [".", ".."] {
            assert_eq!(check(message(dots, "a")).unwrap_err().code, "bad_id");
            assert_eq!(check(message("a", dots)).unwrap_err().code, "bad_topic");
        }
        assert!(check(message("...", "a/../b")).is_ok());
    }

    #[test]
    fn the_trace_is_no_part_of_the_content() {
        let (mut one, mut two) = (message("a", "t"), message("a", "t"));
        one.properties.put(Properties::TRACEPARENT, "1");
        two.properties.put(Properties::TRACEPARENT, "2");
        two.properties.put(Properties::TRACESTATE, "x=1");
        assert!(one.same_content(&two) && two.same_content(&one));
        assert_eq!(one.content_hash(), two.content_hash());
        two.properties.put("u", "x");
        assert!(!one.same_content(&two));
    }
}
