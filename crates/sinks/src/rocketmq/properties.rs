//! The properties of a message: one text, as RocketMQ has it.

use duly_core::Delivery;

use super::unique_key;

/// Between a name and its value, and after each value. No text of a message has control characters in it.
const AFTER_NAME: char = '\u{1}';
const AFTER_VALUE: char = '\u{2}';
pub(super) const CONTENT_TYPE: &str = "content-type";
const SHARDING_KEY: &str = "__SHARDINGKEY";
/// Bytes of what every message has, at most: names, separators, numbers, the type of the content and the unique key.
const FIXED_MAX: usize = 256;

/// The properties of a message.
pub(super) fn text(delivery: &Delivery) -> String {
    let message = &delivery.message;
    let mut text = String::with_capacity(len_max(delivery));
    let mut add = |name: &str, value: &str| push(&mut text, name, value);
    add("UNIQ_KEY", &unique_key::of(&message.id, message.due));
    add("KEYS", message.id.as_str());
    if let Some(tag) = &message.tag {
        add("TAGS", tag.as_str());
    }
    if let Some(key) = &message.key {
        add(SHARDING_KEY, key.as_str());
    }
    // Answered when the broker has done with it what it is set to: synced it, or copied it.
    add("WAIT", "true");
    add("duly-id", message.id.as_str());
    add("duly-due", &message.due.as_millis().to_string());
    add("duly-attempt", &delivery.attempt.to_string());
    add(CONTENT_TYPE, message.body.kind().mime());
    for (name, value) in message.properties.iter() {
        add(name, value);
    }
    text
}

/// The properties of a batch that begins with this message, besides those of its messages: what RocketMQ's own client gives it.
pub(super) fn of_batch(first: &Delivery) -> String {
    let mut text = String::new();
    push(&mut text, "UNIQ_KEY", &unique_key::of(&first.message.id, first.message.due));
    push(&mut text, "WAIT", "true");
    text
}

/// Bytes of the properties, at most, without making them.
pub(super) fn len_max(delivery: &Delivery) -> usize {
    let message = &delivery.message;
    let tag = message.tag.as_ref().map_or(0, |tag| tag.as_str().len());
    let key = message.key.as_ref().map_or(0, |key| key.as_str().len());
    let own: usize = message.properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    FIXED_MAX + 2 * message.id.as_str().len() + tag + key + own
}

fn push(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push(AFTER_NAME);
    text.push_str(value);
    text.push(AFTER_VALUE);
}

#[cfg(test)]
mod tests {
    use duly_core::{Body, StoredMessage, Timestamp};

    use super::*;

    #[test]
    fn the_length_is_known_before_the_text_is_made() {
        let (id, sink, topic) = ("i".repeat(128), "rocket".parse().unwrap(), "orders".parse().unwrap());
        let mut message = StoredMessage::new(id.parse().unwrap(), sink, topic, Timestamp::MAX);
        message.body = Body::json(&"x").unwrap();
        message.tag = Some("t".repeat(100).parse().unwrap());
        message.key = Some("ключ".parse().unwrap());
        message.properties.set("tenant", "ä").unwrap();
        let full = Delivery::new(message.clone(), u32::MAX);
        let small = StoredMessage {
            tag: None,
            key: None,
            body: Body::text("x"),
            properties: Default::default(),
            due: Timestamp::default(),
            ..message
        };
        for delivery in [full, Delivery::new(small, 1)] {
            let (text, len_max) = (text(&delivery), len_max(&delivery));
            assert!(text.len() <= len_max && text.len() + FIXED_MAX > len_max, "{} {len_max}", text.len());
        }
    }
}
