//! Encodes a message as a record.

use duly_core::{Delivery, ErrorCode, Invalid, StoredMessage};
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
};

use super::context::RecordOpaque;

/// Headers that every record has; those of Duly begin with `duly-` besides.
const CONTENT_TYPE: &str = "content-type";
const OURS: &str = "duly-";
/// The longest name of a topic.
const TOPIC_MAX: usize = 249;
/// Internal topics of Kafka: brokers accept no records for them from clients.
const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Checks that the message can be a Kafka record.
pub(super) fn check(message: &StoredMessage) -> Result<(), Invalid> {
    let topic = message.topic.as_str();
    if !is_topic(topic) {
        let detail = format!(
            "{topic:?} is no name for a topic: at most {TOPIC_MAX} letters a-z A-Z, digits, dots, - and _"
        );
        return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    }
    if INTERNAL.contains(&topic) {
        let detail = format!("{topic:?} is a topic of Kafka itself, which takes no messages: choose another");
        return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    }
    let is_taken = |name: &str| name == CONTENT_TYPE || name.starts_with(OURS);
    match message.properties.iter().find(|(name, _)| is_taken(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let detail = format!("a record has the header {name:?} already: give the property another name");
            Err(Invalid::property(name, detail))
        }
    }
}

fn is_topic(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= TOPIC_MAX && name != "." && name != ".." && name.chars().all(is_letter)
}

/// The record. Its time is when it is sent, as brokers delete by it; when it was due stands in a header.
pub(super) fn record<'a>(
    delivery: &'a Delivery,
    opaque: RecordOpaque,
) -> BaseRecord<'a, str, [u8], Box<RecordOpaque>> {
    let message = &delivery.message;
    let mut headers = OwnedHeaders::new_with_capacity(message.properties.len() + 5);
    let mut add = |key: &str, value: &str| {
        headers = std::mem::take(&mut headers).insert(Header { key, value: Some(value) });
    };
    add("duly-id", message.id.as_str());
    add("duly-due", &message.due.as_millis().to_string());
    add("duly-attempt", &delivery.attempt.to_string());
    if let Some(tag) = &message.tag {
        add("duly-tag", tag.as_str());
    }
    add(CONTENT_TYPE, message.body.kind().mime());
    for (name, value) in message.properties.iter() {
        add(name, value);
    }
    let record = BaseRecord::with_opaque_to(message.topic.as_str(), Box::new(opaque));
    let record = record.payload(message.body.as_bytes()).headers(headers);
    match &message.key {
        Some(key) => record.key(key.as_str()),
        None => record,
    }
}
