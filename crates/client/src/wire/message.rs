//! Messages as they are sent, and as they are shown.

use std::collections::BTreeMap;

use duly_core::SinkName;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Delay, ItemError, Moment, object::objects_only};

objects_only!(NewMessage, Retry, Reschedule);

/// A message to schedule. At most one of `body`, `json`, `body_base64`; at most one of `delay`, `deliver_at`, `level`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewMessage {
    /// The topic, queue, stream, subject or path at the sink.
    pub topic: String,
    /// A configured sink; the built-in `queue` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// 1–128 of `A-Za-z0-9._:-`. Sent again with the same content it is a duplicate. Made by Duly if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A tag: RocketMQ's tag, AMQP routing, a header elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// A partition or ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body as any JSON value, kept without the spaces between its parts. `null` is a value, too, but beside `body` or `body_base64` it
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::json::present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub json: Option<Box<RawValue>>,
    /// The body as bytes, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Become headers of the target. Each name once.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "super::properties::each_once"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BTreeMap<String, String>>))]
    pub properties: BTreeMap<String, String>,
    /// Due this long after it is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Due at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Moment>,
    /// Due after the delay of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// 0–9, 4 unless told otherwise: who goes first among those of one lane due in the same millisecond.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::priority")]
    pub priority: Option<u8>,
    /// Given up as `expired` if it is not delivered this long after its due time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lateness: Option<Delay>,
    /// Its own retries; what it leaves out is the sink's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

impl NewMessage {
    /// The sink that it goes to: the built-in queue unless it names another.
    pub fn sink_name(&self) -> &str {
        self.sink.as_deref().unwrap_or(SinkName::QUEUE)
    }

    /// Appends it as one line of a batch. A `json` body keeps the layout in which it was given, and its line breaks would end the
    /// line: they become spaces. Within strings, JSON has no line breaks.
    pub fn append_line(&self, lines: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = lines.len();
        serde_json::to_writer(&mut *lines, self)?;
        for byte in lines[start..].iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        lines.push(b'\n');
        Ok(())
    }
}

/// Whether this text of JSON is an object, and no array of its fields.
pub fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{")
}

/// What a message says about its own retries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Retry {
    /// Attempts in total.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::attempts")]
    pub attempts: Option<u32>,
    /// How the wait grows: `fixed`, `linear` or `exponential`. What failed together is spread: see `min` and `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// The first wait, and up to a quarter more, but no longer than `max`; no wait is shorter. Without a `max` of its own, that of the sink or
    /// queue holds; a `min` beyond that replaces it, and each wait is `min` and up to a quarter more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Delay>,
    /// The longest wait. The same as `min`, it makes every wait exactly that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Delay>,
}

/// A message that Duly has taken: it is durable.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Accepted {
    /// Its id, given or made.
    pub id: String,
    /// Where it goes.
    pub sink: String,
    /// The topic there.
    pub topic: String,
    /// `pending`, unless it is a duplicate.
    pub state: String,
    /// When it is due.
    pub deliver_at: String,
    /// The same, in milliseconds since 1970.
    pub deliver_at_ms: u64,
    /// Known before with the same content: nothing changed; time and state are the first one's.
    pub duplicate: bool,
    /// `time`, if the first one's due time is another than the one sent now: it stands. PATCH changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// One answer of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub enum BatchResult {
    /// It was taken.
    Accepted(Accepted),
    /// It was not; its neighbours stand.
    Refused {
        /// Why it was refused.
        error: ItemError,
    },
}

/// Another due time: `delay` or `deliver_at`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Reschedule {
    /// Due this long from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Due at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Moment>,
}

/// A message has another due time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Rescheduled {
    /// The id of the message.
    pub id: String,
    /// `pending`.
    pub state: String,
    /// When it is due now.
    pub deliver_at: String,
    /// The same, in milliseconds since 1970.
    pub deliver_at_ms: u64,
    /// An earlier attempt has no known outcome: it may have arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maybe_delivered: bool,
}

/// A message is cancelled.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Cancelled {
    /// The id of the message.
    pub id: String,
    /// `cancelled`.
    pub state: String,
    /// It was cancelled before: nothing changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already: bool,
    /// An earlier attempt has no known outcome: it may have arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maybe_delivered: bool,
}

// In JSON it is one flat object: the parts are for readers of the code.
/// A message with its state, times, attempts and body.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Where it goes.
    pub sink: String,
    /// The topic there.
    pub topic: String,
    /// Its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `pending`, `in_flight`, `delivered`, `dead` or `cancelled`.
    pub state: String,
    /// When it was accepted, is due and is attempted next.
    #[serde(flatten)]
    pub times: MessageTimes,
    /// 0–9.
    pub priority: u8,
    /// Attempts that count.
    pub attempts_counted: u32,
    /// The latest attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// An earlier attempt has no known outcome: it may have arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maybe_delivered: bool,
    /// How and when it ended.
    #[serde(flatten)]
    pub end: MessageEnd,
    /// What the producer gave: properties, rules and body.
    #[serde(flatten)]
    pub content: MessageContent,
}

/// When a message was accepted, is due and is attempted next.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct MessageTimes {
    /// When it was accepted; by the database's clock in a store of SQL. Left out of what was stored before this was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at_ms: Option<u64>,
    /// When it is or was due.
    pub deliver_at: String,
    /// The same, in milliseconds since 1970.
    pub deliver_at_ms: u64,
    /// When the next attempt is, if it waits after a failed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_ms: Option<u64>,
}

/// How and when a message ended; nothing while it has not.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct MessageEnd {
    /// When it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at_ms: Option<u64>,
    /// When it was delivered, given up or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<u64>,
    /// What the target gave as proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// Why it is dead: `exhausted`, `refused`, `expired`, `invalid` or `damaged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What the producer of a message gave: properties, rules and body.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct MessageContent {
    /// Headers of the target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Given up as `expired` if it is not delivered so many milliseconds after its due time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lateness_ms: Option<u64>,
    /// What it said about its own retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What the producer said the body is, while it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body, while it is kept and is UTF-8. Lists leave bodies out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body, while it is kept and is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

/// One attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Attempt {
    /// When its outcome was known.
    pub at: String,
    /// The same, in milliseconds since 1970.
    pub at_ms: u64,
    /// How it ended.
    pub outcome: String,
    /// The target's or handler's words.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_the_layout_of_its_json() {
        let text = "{\"topic\":\"a\",\"json\":{\n \"b\":\r\n[1,\n2]}}";
        let (mut lines, message): (_, NewMessage) = (Vec::new(), serde_json::from_str(text).unwrap());
        message.append_line(&mut lines).unwrap();
        message.append_line(&mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines}");
        for line in lines.lines() {
            let read: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(read["json"], serde_json::json!({"b": [1, 2]}));
        }
    }

    #[test]
    fn a_message_is_one_flat_object_in_the_order_of_its_fields() {
        let whole = r#"{"id":"a","sink":"s","topic":"t","tag":"g","key":"k","state":"dead","accepted_at":"x","accepted_at_ms":1,"#.to_owned()
            + r#""deliver_at":"y","deliver_at_ms":2,"retry_at":"z","retry_at_ms":3,"priority":4,"attempts_counted":5,"#
            + r#""attempts":[{"at":"w","at_ms":6,"outcome":"unknown","detail":"d"}],"maybe_delivered":true,"delivered_at":"v","#
            + r#""delivered_at_ms":7,"ended_at":"u","ended_at_ms":8,"receipt":"r","reason":"exhausted","properties":{"p":"q"},"#
            + r#""max_lateness_ms":9,"retry":{"attempts":10,"min":"1s"},"content_type":"text/plain","body":"b","body_base64":"Yg=="}"#;
        let least = r#"{"id":"a","sink":"s","topic":"t","state":"pending","deliver_at":"y","deliver_at_ms":2,"priority":4,"#
            .to_owned()
            + r#""attempts_counted":0,"attempts":[]}"#;
        for text in [whole, least] {
            let message: Message = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
        let newer = r#"{"id":"a","sink":"s","topic":"t","state":"pending","deliver_at":"y","deliver_at_ms":2,"priority":4,"attempts_counted":0,"attempts":[],"new":1}"#;
        assert!(serde_json::from_str::<Message>(newer).is_ok(), "a field of a newer server is skipped");
        let missing = r#"{"id":"a","sink":"s","topic":"t","state":"pending","priority":4,"attempts_counted":0,"attempts":[]}"#;
        assert!(serde_json::from_str::<Message>(missing).unwrap_err().to_string().contains("deliver_at"));
    }
}
