//! Encodes a message for AMQP.

use std::{
    borrow::Cow,
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use bytes::Bytes;
use duly_core::{Delivery, ErrorCode, Invalid, StoredMessage};
use lapin::{
    BasicProperties, Channel, PublisherConfirm,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable, ShortString},
};

use super::settings::Settings;

/// The broker writes it down.
const PERSISTENT: u8 = 2;

/// All headers of a message are in one frame, which brokers take up to 128 KiB by default. A larger one ends the connection of all
/// messages. Each property takes a few bytes more, and there are headers of our own.
const PROPERTIES_BYTES_MAX: usize = 96 * 1_024;

/// How exchanges are called that RabbitMQ makes for itself, such as that of its tracing: it lets no user publish there, whatever
/// the rights.
const INTERNAL: &str = "amq.rabbitmq.";

const OURS: &str = "duly-";
const CONTENT_TYPE: &str = "content-type";
/// Headers by which RabbitMQ is told what to do: to wait, and to send to others besides.
const ORDERS: [&str; 3] = ["x-delay", "CC", "BCC"];

/// A message, ready to be sent.
pub(super) struct OutgoingMessage {
    pub(super) exchange: ShortString,
    pub(super) key: ShortString,
    /// Exchange and key, hashed.
    pub(super) destination: u64,
    properties: BasicProperties,
    body: Bytes,
}

impl OutgoingMessage {
    /// Encodes the message for AMQP.
    pub(super) fn of(delivery: &Delivery, settings: &Settings) -> Result<Self, Invalid> {
        let message = &delivery.message;
        let body = message.body.to_bytes();
        let topic = message.topic.as_str();
        let (exchange, key) = route(topic, settings);
        if let Some(detail) = internal(exchange) {
            return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
        }
        let exchange = short("the exchange", "topic", exchange)?;
        let tag = message.tag.as_ref().map(|tag| tag.as_str());
        let key = match tag.filter(|_| settings.tag_in_key) {
            Some(tag) => short("the routing key", "topic", &format!("{key}.{tag}"))?,
            None => short("the routing key", "topic", key)?,
        };
        let properties = fields(delivery)?
            .with_message_id(short("the id", "id", message.id.as_str())?)
            .with_content_type(message.body.kind().mime().into())
            .with_delivery_mode(PERSISTENT)
            .with_timestamp(message.due.as_millis() / 1_000)
            .with_headers(headers(delivery)?);
        let bytes: usize = message.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > PROPERTIES_BYTES_MAX {
            let detail = format!(
                "{bytes} bytes of properties, and one frame of AMQP has room for {PROPERTIES_BYTES_MAX}"
            );
            return Err(Invalid::new(ErrorCode::BadProperty, "properties", detail));
        }
        let destination = hash(&exchange, &key);
        Ok(Self { exchange, key, destination, properties, body })
    }

    /// What the broker names it by when it returns it.
    pub(super) fn id(&self) -> &str {
        self.properties.message_id().as_ref().map(ShortString::as_str).unwrap_or_default()
    }

    /// The bytes of its body, which the broker may find too many.
    pub(super) fn size(&self) -> usize {
        self.body.len()
    }

    /// Publishes it: it was handed to the connection when this returns. Returned by the broker if no queue wants it.
    pub(super) async fn publish(&self, channel: &Channel) -> lapin::Result<PublisherConfirm> {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (exchange, key) = (self.exchange.clone(), self.key.clone());
        channel.basic_publish(exchange, key, mandatory, &self.body, self.properties.clone()).await
    }
}

/// The exchange and the routing key that a topic stands for, without a tag.
pub(super) fn route<'a>(topic: &'a str, settings: &'a Settings) -> (&'a str, &'a str) {
    match &settings.exchange {
        Some(exchange) => (exchange.as_str(), topic),
        None => topic.split_once('/').unwrap_or(("", topic)),
    }
}

/// The reason that no user may publish to this exchange, if there is one.
pub(super) fn internal(exchange: &str) -> Option<String> {
    exchange.starts_with(INTERNAL).then(|| {
        format!("to {exchange:?} RabbitMQ itself publishes and nobody else: name an exchange of your own")
    })
}

fn hash(exchange: &ShortString, key: &ShortString) -> u64 {
    let mut hasher = DefaultHasher::new();
    (exchange.as_str(), key.as_str()).hash(&mut hasher);
    hasher.finish()
}

/// Checks that the message can be published to an exchange.
pub(super) fn check(message: &StoredMessage, settings: &Settings) -> Result<(), Invalid> {
    // The body is shared, the rest is small: written once more rather than checked in two ways.
    OutgoingMessage::of(&Delivery::new(message.clone(), 1), settings).map(drop)
}

/// Exchange and routing key, as a topic would name them: what fails together, as far as a publisher can know.
pub(super) fn destination<'a>(message: &'a StoredMessage, settings: &Settings) -> Cow<'a, str> {
    let topic = message.topic.as_str();
    // `/orders` and `orders` are the same queue.
    let topic = match topic.strip_prefix('/') {
        Some(key) if settings.exchange.is_none() && !key.contains('/') => key,
        _ => topic,
    };
    match message.tag.as_ref().filter(|_| settings.tag_in_key) {
        Some(tag) => Cow::Owned(format!("{topic}.{}", tag.as_str())),
        None => Cow::Borrowed(topic),
    }
}

/// Properties that have a place of their own in AMQP are there, too: consumers of other senders look for them there.
fn fields(delivery: &Delivery) -> Result<BasicProperties, Invalid> {
    let given = |name: &str| {
        let value = delivery.message.properties.get(name);
        value.map(|value| short(name, &format!("properties.{name}"), value)).transpose()
    };
    let mut fields = BasicProperties::default();
    if let Some(value) = given("correlation-id")? {
        fields = fields.with_correlation_id(value);
    }
    if let Some(value) = given("reply-to")? {
        fields = fields.with_reply_to(value);
    }
    if let Some(value) = given("type")? {
        fields = fields.with_type(value);
    }
    if let Some(value) = given("app-id")? {
        fields = fields.with_app_id(value);
    }
    if let Some(value) = given("content-encoding")? {
        fields = fields.with_content_encoding(value);
    }
    Ok(fields)
}

fn headers(delivery: &Delivery) -> Result<FieldTable, Invalid> {
    let message = &delivery.message;
    let mut all = BTreeMap::new();
    for (name, value) in message.properties.iter() {
        let is_ours = name.starts_with(OURS) || name.eq_ignore_ascii_case(CONTENT_TYPE);
        if is_ours || ORDERS.contains(&name) {
            let detail = format!("the header {name:?} is not for properties: give this one another name");
            return Err(Invalid::property(name, detail));
        }
        let path = format!("properties.{name}");
        all.insert(short("the name of a property", &path, name)?, text(value));
    }
    all.insert("duly-id".into(), text(message.id.as_str()));
    all.insert("duly-due".into(), text(&message.due.as_millis().to_string()));
    all.insert("duly-attempt".into(), text(&delivery.attempt.to_string()));
    if let Some(tag) = &message.tag {
        all.insert("duly-tag".into(), text(tag.as_str()));
    }
    if let Some(key) = &message.key {
        all.insert("duly-key".into(), text(key.as_str()));
    }
    Ok(all.into())
}

fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}

/// Names have 255 bytes in AMQP.
fn short(what: &str, path: &str, words: &str) -> Result<ShortString, Invalid> {
    let code = match path {
        "topic" => ErrorCode::BadTopic,
        "id" => ErrorCode::BadId,
        _ => ErrorCode::BadProperty,
    };
    let fault = || {
        let detail = format!("{what} has {} bytes, and AMQP has room for 255", words.len());
        Invalid::new(code, path, detail)
    };
    ShortString::try_new(words).map_err(|_| fault())
}
