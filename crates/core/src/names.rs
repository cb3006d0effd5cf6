//! Validated names of sinks, topics, tags, keys and lanes.

use std::{fmt, str::FromStr};

use compact_str::CompactString;

use crate::{ErrorCode, Invalid};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:literal, $code:expr, $max:literal $(, without $bad:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(CompactString);

        impl $name {
            /// Bytes of it.
            pub const LEN_MAX: usize = $max;

            /// Checks the text: not empty, not too long, no control characters.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                check(text, $field, $code, Self::LEN_MAX)?;
                $(if text.contains($bad) {
                    let detail = format!("a {} has no {:?}: it ends the name in sink/topic", $field, $bad);
                    return Err(Invalid::new($code, $field, detail));
                })?
                Ok(Self(CompactString::new(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0.as_str())
            }
        }
    };
}

fn check(text: &str, field: &str, code: ErrorCode, max: usize) -> Result<(), Invalid> {
    if text.is_empty() || text.len() > max {
        let detail = format!("a {field} has 1 to {max} bytes, this one has {}", text.len());
        return Err(Invalid::new(code, field, detail));
    }
    // Control characters would allow header injection at the target.
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(code, field, format!("a {field} has no control characters")));
    }
    Ok(())
}

name!(
    /// Where messages go: the name of a configured sink, or `queue`, the built-in queue.
    SinkName, "sink", ErrorCode::BadSink, 64, without '/'
);
name!(
    /// The topic, stream, queue, subject or path at the sink.
    Topic, "topic", ErrorCode::BadTopic, 255
);
name!(
    /// A tag: RocketMQ's tag, AMQP routing, a header elsewhere.
    Tag, "tag", ErrorCode::BadTag, 255
);
name!(
    /// A partition or ordering key.
    Key, "key", ErrorCode::BadKey, 255
);

impl Topic {
    /// A topic that somebody names now: `.` and `..` are refused, because no URL can hold them. [`parse`](Self::parse) takes them: what was stored
    /// before must still be read.
    pub fn parse_new(text: &str) -> Result<Self, Invalid> {
        let topic = Self::parse(text)?;
        topic.check_new().map(|()| topic)
    }

    /// Refuses what [`parse_new`](Self::parse_new) refuses.
    pub(crate) fn check_new(&self) -> Result<(), Invalid> {
        if is_dots(&self.0) {
            let detail = "a topic is not . or ..: no URL could name it";
            return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
        }
        Ok(())
    }
}

/// URLs with such a part are rewritten before they are sent.
pub(crate) fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

impl SinkName {
    /// The reserved name of the built-in queue.
    pub const QUEUE: &str = "queue";

    /// The built-in queue.
    pub fn queue() -> Self {
        Self(CompactString::const_new(Self::QUEUE))
    }

    /// Whether this is the built-in queue.
    pub fn is_queue(&self) -> bool {
        self.0 == Self::QUEUE
    }
}

/// The unit of claiming, pausing and measuring: a lane that is blocked, paused or failing never delays another.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Lane {
    /// All messages of one sink.
    Sink(SinkName),
    /// One topic of the built-in queue.
    Queue(Topic),
}

impl Lane {
    /// The lane of messages for `sink` and `topic`.
    pub fn of(sink: &SinkName, topic: &Topic) -> Self {
        if sink.is_queue() { Self::Queue(topic.clone()) } else { Self::Sink(sink.clone()) }
    }

    /// The topic, if it is a lane of the built-in queue.
    pub fn queue(&self) -> Option<&Topic> {
        match self {
            Self::Queue(topic) => Some(topic),
            Self::Sink(_) => None,
        }
    }

    /// Kind and name, as stores write them. These numbers are on disk: never change or reuse one.
    pub fn parts(&self) -> (u8, &str) {
        match self {
            Self::Sink(sink) => (0, sink.as_str()),
            Self::Queue(topic) => (1, topic.as_str()),
        }
    }

    /// Reads [`parts`](Self::parts) back.
    pub fn from_parts(kind: u8, name: &str) -> Option<Self> {
        match kind {
            0 => SinkName::parse(name).ok().map(Self::Sink),
            1 => Topic::parse(name).ok().map(Self::Queue),
            _ => None,
        }
    }

    /// Whether `message` belongs to this lane: [`of`](Self::of) without an allocation.
    pub fn carries(&self, message: &crate::StoredMessage) -> bool {
        match self {
            Self::Queue(topic) => message.sink.is_queue() && message.topic == *topic,
            Self::Sink(sink) => message.sink == *sink,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sink(sink) => f.write_str(sink.as_str()),
            Self::Queue(topic) => write!(f, "{}/{topic}", SinkName::QUEUE),
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_lanes_that_stores_write_never_change() {
        let sink = Lane::Sink(SinkName::parse("hook").unwrap());
        let queue = Lane::Queue(Topic::parse("order").unwrap());
        assert_eq!((sink.parts(), queue.parts()), ((0, "hook"), (1, "order")));
        for lane in [sink, queue] {
            let (kind, name) = lane.parts();
            assert_eq!(Lane::from_parts(kind, name), Some(lane));
        }
        assert_eq!((Lane::from_parts(2, "order"), Lane::from_parts(1, "")), (None, None));
    }

    #[test]
    fn queue_topics_are_lanes_of_their_own_and_a_sink_is_one_lane() {
        let (orders, mail) = (Topic::parse("orders").unwrap(), Topic::parse("mail").unwrap());
        let kafka = SinkName::parse("kafka").unwrap();
        assert_ne!(Lane::of(&SinkName::queue(), &orders), Lane::of(&SinkName::queue(), &mail));
        assert_eq!(Lane::of(&kafka, &orders), Lane::of(&kafka, &mail));
    }

    #[test]
    fn a_sink_name_has_no_slash_and_a_topic_may_have_some() {
        assert_eq!(SinkName::parse("a/b").unwrap_err().code, "bad_sink");
        assert!(Topic::parse("a/b").is_ok());
    }

    #[test]
    fn control_characters_and_bad_lengths_are_refused() {
        for bad in ["", "a\r\nb", "a\0", &"x".repeat(256)] {
            assert_eq!(Topic::parse(bad).unwrap_err().code, "bad_topic", "{bad:?}");
        }
        assert!(Topic::parse("заказ/истёк").is_ok());
    }
}
