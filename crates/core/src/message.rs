//! Accepted messages.

use std::time::Duration;

use crate::{
    Body, ErrorCode, Invalid, Key, Lane, Limits, MessageId, Properties, RetryOverride, SinkName, Tag,
    Timestamp, Topic,
};

/// 0–9. Of messages that are due in the same millisecond of a lane, the higher goes first.
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

/// An accepted message: every field is validated, and its due time is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its id, unique in one Duly.
    pub id: MessageId,
    /// Its sink.
    pub sink: SinkName,
    /// Its topic at the sink.
    pub topic: Topic,
    /// Optional tag.
    pub tag: Option<Tag>,
    /// Optional partition or ordering key.
    pub key: Option<Key>,
    /// Its body.
    pub body: Body,
    /// Headers at the target.
    pub properties: Properties,
    /// When it is due. A retry does not change it.
    pub due: Timestamp,
    /// Its priority.
    pub priority: Priority,
    /// If it is not delivered by `due` plus this, it is a dead letter with the reason `expired`.
    pub max_lateness: Option<Duration>,
    /// Its own retry settings.
    pub retry: Option<Box<RetryOverride>>,
}

impl StoredMessage {
    /// A message with the required fields.
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

    /// Its lane.
    pub fn lane(&self) -> Lane {
        Lane::of(&self.sink, &self.topic)
    }

    /// Whether `other` is the same message sent again: due time, priority, retry settings and trace do not count.
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
        // Each part is hashed with its length, so that parts cannot run into one another.
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

    /// Checks the limits, and that id and topic fit into a URL. `now` is the upper bound of the current time.
    pub fn check(&self, now: Timestamp, limits: &Limits) -> Result<(), Invalid> {
        // Not in `parse`, because messages stored earlier must remain readable.
        if crate::names::is_dots(self.id.as_str()) {
            return Err(Invalid::new(ErrorCode::BadId, "id", "an id is not . or ..: no URL could name it"));
        }
        self.topic.check_new()?;
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
            return Err(limits.too_far("deliver_at"));
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
