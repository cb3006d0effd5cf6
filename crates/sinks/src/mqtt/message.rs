//! A message as a PUBLISH packet.

use bytes::{BufMut, BytesMut};
use duly_core::{ContentKind, Delivery, ErrorCode, Invalid, StoredMessage};

use super::{
    config::MqttVersion,
    packet::{PACKET_MAX, length, length_of, text},
    settings::{Qos, Settings},
};

/// The longest text of the protocol.
const TEXT_MAX: usize = u16::MAX as usize;
const CONTENT_TYPE: &str = "content-type";
const OURS: &str = "duly-";

/// Numbers of properties.
const IS_TEXT: u8 = 0x01;
const KIND: u8 = 0x03;
const USER: u8 = 0x26;

/// Why no broker takes this message, if it is so.
pub(super) fn check(message: &StoredMessage, settings: &Settings) -> Result<(), Invalid> {
    let topic = message.topic.as_str();
    let bad_topic = |detail: String| Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    if topic.contains(['+', '#', '\0']) {
        return bad_topic(format!("{topic:?} has a wildcard in it: nothing can be published to that"));
    }
    if topic.starts_with('$') {
        return bad_topic(format!("{topic:?}: topics that begin with $ are the broker's own"));
    }
    if settings.version == MqttVersion::V3 {
        // Nobody asked for the trace of the call: it goes.
        let has_properties = message.properties.of_content().next().is_some();
        let is_lost = message.tag.is_some() || message.key.is_some() || has_properties;
        if is_lost && !settings.drop_headers {
            let detail = "MQTT 3.1.1 has no place for tag, key and properties: use version 5, or let them go with drop_headers = true";
            return Err(Invalid::new(ErrorCode::BadProperty, "properties", detail));
        }
        return Ok(());
    }
    for (name, value) in message.properties.iter() {
        let small = name.to_ascii_lowercase();
        if small == CONTENT_TYPE || small.starts_with(OURS) {
            let detail = format!("Duly sets {name:?} itself: give the property another name");
            return Err(Invalid::property(name, detail));
        }
        let is_text = |text: &str| text.len() <= TEXT_MAX && !text.contains('\0');
        if !is_text(name) || !is_text(value) {
            return Err(Invalid::property(name, format!("MQTT cannot carry the property {name:?}")));
        }
    }
    Ok(())
}

/// Adds it to `out`, unless it is longer than `packet_max`: then says how long.
pub(super) fn publish(
    out: &mut BytesMut,
    delivery: &Delivery,
    (version, qos): (MqttVersion, Qos),
    id: u16,
    packet_max: usize,
) -> Result<(), usize> {
    let message = &delivery.message;
    let (topic, body) = (message.topic.as_str(), message.body.as_bytes());
    let mut properties = BytesMut::new();
    if version == MqttVersion::V5 {
        add_properties(&mut properties, delivery);
    }
    let before = match version {
        MqttVersion::V5 => length_of(properties.len()) + properties.len(),
        MqttVersion::V3 => 0,
    };
    let rest = 2 + topic.len() + 2 + before + body.len();
    let whole = 1 + length_of(rest) + rest;
    if rest > PACKET_MAX || whole > packet_max {
        return Err(whole);
    }
    out.reserve(whole);
    out.put_u8(0x30 | (qos as u8) << 1);
    length(out, rest);
    text(out, topic);
    out.put_u16(id);
    if version == MqttVersion::V5 {
        length(out, properties.len());
        out.put_slice(&properties);
    }
    out.put_slice(body);
    Ok(())
}

fn add_properties(out: &mut BytesMut, delivery: &Delivery) {
    let message = &delivery.message;
    let kind = message.body.kind();
    out.put_slice(&[IS_TEXT, u8::from(kind != ContentKind::Bytes)]);
    out.put_u8(KIND);
    text(out, kind.mime());
    let mut user = |name: &str, value: &str| {
        out.put_u8(USER);
        text(out, name);
        text(out, value);
    };
    user("duly-id", message.id.as_str());
    user("duly-due", &message.due.as_millis().to_string());
    user("duly-attempt", &delivery.attempt.to_string());
    if let Some(tag) = &message.tag {
        user("duly-tag", tag.as_str());
    }
    if let Some(key) = &message.key {
        user("duly-key", key.as_str());
    }
    for (name, value) in message.properties.iter() {
        user(name, value);
    }
}
