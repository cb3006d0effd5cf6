//! A message as a SEND frame.

use bytes::BytesMut;
use duly_core::{Delivery, ErrorCode, Invalid, StoredMessage};

use super::{
    config::ActivemqDestination,
    frame::{Writer, escaped},
    stomp::Make,
};

/// The longest header line that ActiveMQ reads, and the most of them. What is beyond makes it lose its place in what we send.
const HEADER_MAX: usize = 10 * 1024;
const HEADERS_MAX: usize = 900;
/// Headers that STOMP or ActiveMQ understand: a property of such a name would change what becomes of a message.
const RESERVED: &[&str] = &[
    "destination",
    "destination-type",
    "receipt",
    "receipt-id",
    "persistent",
    "priority",
    "expires",
    "transaction",
    "selector",
    "correlation-id",
    "reply-to",
    "type",
    "content-type",
    "content-length",
    "message-id",
    "subscription",
    "id",
    "ack",
    "redelivered",
    "timestamp",
    "transformation",
    "transformation-error",
    "amq-msg-type",
    "browser",
    "retain",
];
const PREFIXES: &[&str] = &["duly-", "jms", "amq_", "_amq", "__amq", "_hq", "activemq."];

impl ActivemqDestination {
    fn prefix(self) -> &'static str {
        match self {
            Self::Queue => "/queue/",
            Self::Topic => "/topic/",
        }
    }

    fn routing(self) -> &'static str {
        match self {
            Self::Queue => "ANYCAST",
            Self::Topic => "MULTICAST",
        }
    }
}

/// Why no queue takes this message, if it is so.
pub(super) fn check(message: &StoredMessage) -> Result<(), Invalid> {
    let topic = message.topic.as_str();
    if let Some(why) = unfit(topic) {
        let detail = format!("{topic:?} is no name for a queue or topic: {why}");
        return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    }
    if message.properties.len() > HEADERS_MAX {
        let detail = format!("{} properties, and ActiveMQ reads {HEADERS_MAX}", message.properties.len());
        return Err(Invalid::new(ErrorCode::TooManyProperties, "properties", detail));
    }
    for (name, value) in message.properties.iter() {
        let small = name.to_ascii_lowercase();
        if RESERVED.contains(&&*small) || PREFIXES.iter().any(|prefix| small.starts_with(prefix)) {
            let detail = format!(
                "ActiveMQ, STOMP or Duly has a header {name:?} of its own: give the property another name"
            );
            return Err(Invalid::property(name, detail));
        }
        if name.is_empty() || name.contains('\0') || value.contains('\0') {
            let detail = format!("no header can have the name and value of the property {name:?}");
            return Err(Invalid::property(name, detail));
        }
        let length = escaped(name).len() + 1 + escaped(value).len();
        if length > HEADER_MAX {
            let detail = format!(
                "the property {name:?} is a header of {length} bytes, and ActiveMQ reads {HEADER_MAX}"
            );
            return Err(Invalid::property(name, detail));
        }
    }
    Ok(())
}

/// Names that ActiveMQ takes for something else.
fn unfit(name: &str) -> Option<&'static str> {
    if name.contains([',', '?']) {
        return Some("a comma would send it to several, and a question mark begins options");
    }
    if name.contains(['*', '>']) {
        return Some("wildcards would send it to several");
    }
    if name.contains("://") {
        return Some("it is written like an address");
    }
    if name.trim() != name {
        return Some("spaces around it would be lost");
    }
    name.starts_with("ActiveMQ.").then_some("those are ActiveMQ's own")
}

/// Adds it to `out`. Its receipt will have this number.
pub(super) fn send(
    out: &mut BytesMut,
    delivery: &Delivery,
    (to, make): (ActivemqDestination, Make),
    receipt: u64,
) {
    let message = &delivery.message;
    let body = message.body.as_bytes();
    let frame = Writer::new(out, "SEND");
    let frame = match make {
        Make::Classic => frame.header("destination", format_args!("{}{}", to.prefix(), message.topic)),
        Make::Artemis => frame.header("destination", &message.topic).header("destination-type", to.routing()),
    };
    let mut frame = frame
        .header("persistent", "true")
        .header("receipt", receipt)
        .header("content-type", message.body.kind().mime())
        // With it, and only with it, the broker makes no text of the body.
        .header("content-length", body.len())
        .header("duly-id", &message.id)
        .header("duly-due", message.due.as_millis())
        .header("duly-attempt", delivery.attempt);
    if let Some(tag) = &message.tag {
        frame = frame.header("duly-tag", tag);
    }
    if let Some(key) = &message.key {
        frame = frame.header("duly-key", key);
    }
    for (name, value) in message.properties.iter() {
        frame = frame.header(name, value);
    }
    frame.end(body);
}

#[cfg(test)]
mod tests {
    use duly_core::{Body, Timestamp};

    use super::*;

    fn with(topic: &str, name: &str, value: &str) -> Delivery {
        let (id, sink) = ("id".parse().unwrap(), "sink".parse().unwrap());
        let mut message = StoredMessage::new(id, sink, topic.parse().unwrap(), Timestamp::from_millis(7));
        message.body = Body::text("a\0b");
        message.properties.put(name, value);
        Delivery::new(message, 3)
    }

    #[test]
    fn what_a_broker_would_take_for_an_order_is_refused() {
        for name in ["AMQ_SCHEDULED_DELAY", "JMSXGroupID", "Priority", "expires", "duly-id", "content-length"]
        {
            assert_eq!(check(&with("a", name, "1").message).unwrap_err().code, "bad_property", "{name}");
        }
        for topic in ["a,b", "a?x=y", "a.*", ">", "topic://a", " a", "ActiveMQ.Advisory.Queue"] {
            assert_eq!(check(&with(topic, "x", "1").message).unwrap_err().code, "bad_topic", "{topic}");
        }
        assert!(check(&with("a", "x", &"\n".repeat(6000)).message).is_err(), "twice as long on the wire");
        assert!(check(&with("orders.new/eu", "x", &"y".repeat(10_000)).message).is_ok());
    }

    #[test]
    fn a_frame_has_every_field_and_no_line_that_is_not_ours() {
        let mut out = BytesMut::new();
        let message = with("a:b", "x", "1\nreceipt:9");
        send(&mut out, &message, (ActivemqDestination::Topic, Make::Classic), 4);
        let wanted = "SEND\ndestination:/topic/a\\cb\npersistent:true\nreceipt:4\ncontent-type:text/plain; charset=utf-8\n\
                      content-length:3\nduly-id:id\nduly-due:7\nduly-attempt:3\nx:1\\nreceipt\\c9\n\na\0b\0";
        assert_eq!(std::str::from_utf8(&out).unwrap(), wanted);
        out.clear();
        send(&mut out, &message, (ActivemqDestination::Queue, Make::Artemis), 4);
        let begin = "SEND\ndestination:a\\cb\ndestination-type:ANYCAST\npersistent:true\n";
        assert!(std::str::from_utf8(&out).unwrap().starts_with(begin));
    }
}
