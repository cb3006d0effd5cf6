//! What a message of RabbitMQ is to Duly.

use std::time::Duration;

use duly::{Body, ContentKind, Message};
use duly_core::MessageId;
use lapin::{BasicProperties, message::Delivery, types::AMQPValue};

use crate::config::SourceSetup;

/// The header that says how long to wait, in milliseconds.
const DELAY: &str = "x-delay";
/// Headers that RabbitMQ or an earlier delivery wrote, and that would be wrong on the next one. Some differ with each
/// redelivery (`x-acquired-count` since 4.3): with them, the same message would be another one.
const OF_EARLIER: [&str; 6] =
    ["x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-acquired-count", "duly-"];

/// Whose id a message gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    /// The one in its `message-id`, if that can be one.
    Theirs,
    /// One that follows from theirs and from what the message holds: the same at each redelivery.
    Derived,
    /// One that Duly makes.
    Made,
}

impl Id {
    /// What to try when this one belongs to another message.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Theirs => Self::Derived,
            Self::Derived | Self::Made => Self::Made,
        }
    }
}

/// The topic that its message goes to.
pub(super) fn topic(delivery: &Delivery, setup: &SourceSetup) -> String {
    let topic = setup.topic.replace("{routing_key}", delivery.routing_key.as_str());
    topic.replace("{exchange}", delivery.exchange.as_str())
}

/// The message that Duly is to deliver in its place.
pub(super) fn message(delivery: &Delivery, setup: &SourceSetup, id: Id) -> Message {
    let properties = &delivery.properties;
    let topic = topic(delivery, setup);
    let mut message = Message::to_sink(setup.sink.as_str(), &topic)
        .body(body(delivery))
        .after(delay(properties))
        .priority(properties.priority().unwrap_or(4).min(9));
    let headers = headers(properties);
    let theirs = properties.message_id().as_ref().map(|id| id.as_str());
    let own = match id {
        Id::Theirs => theirs.map(str::to_owned),
        Id::Derived => theirs.map(|id| format!("{id}-{:016x}", digest(&topic, delivery, &headers))),
        Id::Made => None,
    };
    if let Some(id) = own.filter(|id| MessageId::parse(id).is_ok()) {
        message = message.id(id);
    }
    for (name, value) in headers {
        message = message.property(name, value);
    }
    message
}

/// FNV-1a of what tells two messages of one id apart. It must not change from one version to the next.
fn digest(topic: &str, delivery: &Delivery, headers: &[(String, String)]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let of_headers = headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let parts = [topic.as_bytes(), &delivery.data].into_iter().chain(of_headers);
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    // A byte that is in no text between two parts.
    parts.fold(START, |hash, part| part.iter().chain(&[0xff]).fold(hash, mix))
}

/// What is no number, and what is below zero, is no delay: so the plugin takes it, too.
fn delay(properties: &BasicProperties) -> Duration {
    let value = properties.headers().as_ref().and_then(|headers| headers.inner().get(DELAY));
    let millis = match value {
        Some(AMQPValue::Double(number)) => *number as i64,
        Some(AMQPValue::Float(number)) => *number as i64,
        Some(other) => text(other).and_then(|text| text.trim().parse().ok()).unwrap_or(0),
        None => 0,
    };
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// As the sender named it, where Duly has a word for it and it is true.
fn body(delivery: &Delivery) -> Body {
    let named = delivery.properties.content_type().as_ref().map_or("", |kind| kind.as_str());
    let kind = match named.split(';').next().unwrap_or_default().trim() {
        "application/json" if serde_json::from_slice::<serde::de::IgnoredAny>(&delivery.data).is_ok() => {
            ContentKind::Json
        }
        plain if plain.starts_with("text/") && std::str::from_utf8(&delivery.data).is_ok() => {
            ContentKind::Text
        }
        _ => ContentKind::Bytes,
    };
    Body::from_parts(kind, delivery.data.clone())
}

/// Headers and those properties of AMQP that an application may miss at the other end.
fn headers(properties: &BasicProperties) -> Vec<(String, String)> {
    let is_old = |name: &str| name == DELAY || OF_EARLIER.iter().any(|begin| name.starts_with(begin));
    let given = properties.headers().iter().flat_map(|headers| headers.inner());
    let headers = given
        .filter(|(name, _)| !is_old(name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
    let of_amqp = [
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("type", properties.kind()),
        ("app-id", properties.app_id()),
        ("content-encoding", properties.content_encoding()),
    ];
    let of_amqp =
        of_amqp.into_iter().filter_map(|(name, value)| Some((name.into(), value.as_ref()?.to_string())));
    headers.chain(of_amqp).collect()
}

/// Lists and tables have no text.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::ShortString(value) => value.to_string(),
        AMQPValue::LongString(value) => String::from_utf8(value.as_bytes().to_vec()).ok()?,
        _ => return None,
    })
}
