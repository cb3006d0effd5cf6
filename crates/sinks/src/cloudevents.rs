//! Messages as CloudEvents 1.0 in binary mode: the attributes are headers beside the body, in front of whichever sink has headers.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use duly_core::{Delivery, ErrorCode, Invalid, Outcomes, Sink, SinkError, StoredMessage};
use serde::Deserialize;

use crate::SinkConfig;

/// What stands in a type for the topic of the message.
const TOPIC: &str = "{topic}";

/// The attributes of a sink's events that its messages do not have, as they are written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloudEventsConfig {
    /// `source`: a URI reference that says who sends, such as `/shop/orders`.
    pub source: String,
    /// `type`, in which `{topic}` is the topic of the message. Without it, it is the topic.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
}

/// How a kind of sink writes attributes: the bindings of CloudEvents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Binding {
    prefix: &'static str,
    /// Values are percent-encoded, as headers of HTTP are.
    is_encoded: bool,
    /// The sink does not say the type of the body where the binding looks for it.
    has_content_type: bool,
}

impl Binding {
    fn of(kind: &str) -> Option<Self> {
        let (prefix, is_encoded) = match kind {
            "webhook" | "nats" => ("ce-", true),
            "kafka" => ("ce_", false),
            "rabbitmq" | "activemq" => ("cloudEvents_", false),
            "rocketmq" => ("CE_", false),
            "mqtt" => ("", false),
            _ => return None,
        };
        Some(Self { prefix, is_encoded, has_content_type: kind != "rocketmq" })
    }

    fn value<'a>(&self, value: &'a str) -> Cow<'a, str> {
        let stays = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
        if !self.is_encoded || value.bytes().all(stays) {
            return Cow::Borrowed(value);
        }
        let encoded = value
            .bytes()
            .map(|byte| if stays(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
        Cow::Owned(encoded.collect())
    }
}

impl CloudEventsConfig {
    /// Everything that is wrong with it for this sink, each with its path below the sink.
    pub fn check(&self, sink: &SinkConfig) -> Vec<Invalid> {
        let fault = |path: &str, detail: String| Invalid::new(ErrorCode::BadSink, path, detail);
        let mut faults = Vec::new();
        if let Some(why) = no_place(sink) {
            faults.push(fault("cloudevents", why.into()));
        }
        #[cfg(feature = "webhook")]
        if let SinkConfig::Webhook(webhook) = sink {
            let ours = webhook.headers.keys().filter(|name| name.to_ascii_lowercase().starts_with("ce-"));
            let detail = "cloudevents sets the headers that begin with ce-: leave one of both out";
            faults.extend(ours.map(|name| fault(&format!("headers.{name}"), detail.into())));
        }
        if !is_uri_reference(&self.source) {
            let detail = format!("{:?} is no URI reference, such as /shop/orders", self.source);
            faults.push(fault("cloudevents.source", detail));
        }
        if let Some(kind) =
            self.kind.as_deref().filter(|kind| kind.is_empty() || kind.chars().any(char::is_control))
        {
            faults
                .push(fault("cloudevents.type", format!("{kind:?} is no type, such as com.example.{TOPIC}")));
        }
        faults
    }

    /// Lets `sink`, which is of this kind, send CloudEvents.
    pub fn wrap(&self, sink: Arc<dyn Sink>, kind: &str) -> Arc<dyn Sink> {
        match Binding::of(kind) {
            Some(binding) => Arc::new(CloudEvents { sink, config: self.clone(), binding }),
            None => sink,
        }
    }
}

/// Why messages of this sink cannot be CloudEvents, if it is so.
fn no_place(sink: &SinkConfig) -> Option<&'static str> {
    match sink {
        #[cfg(feature = "mqtt")]
        SinkConfig::Mqtt(mqtt) if mqtt.version == crate::mqtt::MqttVersion::V3 => {
            Some("MQTT 3.1.1 has no place for attributes: use version 5")
        }
        _ if Binding::of(sink.kind()).is_none() => Some("CloudEvents has no binding for this kind of sink"),
        _ => None,
    }
}

/// Characters of RFC 3986, with no more than one `#`.
fn is_uri_reference(text: &str) -> bool {
    let is_of_uri = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_uri) && text.matches('#').count() <= 1
}

/// Adds the attributes of CloudEvents to the properties of each message.
struct CloudEvents {
    sink: Arc<dyn Sink>,
    config: CloudEventsConfig,
    binding: Binding,
}

impl CloudEvents {
    /// The message with its attributes. One that it has already, as a property of that name, stays.
    fn event(&self, message: &StoredMessage) -> StoredMessage {
        let topic = message.topic.as_str();
        let kind = self
            .config
            .kind
            .as_deref()
            .map_or(Cow::Borrowed(topic), |kind| kind.replace(TOPIC, topic).into());
        let content_type = (!self.binding.has_content_type).then(|| message.body.kind().mime());
        let time = message.due.to_string();
        let attributes = [
            ("specversion", Some("1.0")),
            ("id", Some(message.id.as_str())),
            ("source", Some(&self.config.source)),
            ("type", Some(&kind)),
            ("time", Some(&time)),
            ("datacontenttype", content_type),
        ];
        let mut event = message.clone();
        for (name, value) in attributes {
            let name = format!("{}{name}", self.binding.prefix);
            let is_there = message.properties.iter().any(|(own, _)| own.eq_ignore_ascii_case(&name));
            if let Some(value) = value.filter(|_| !is_there) {
                event.properties.put(&name, &self.binding.value(value));
            }
        }
        event
    }
}

#[async_trait]
impl Sink for CloudEvents {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let event =
            |delivery: &Delivery| Delivery { message: self.event(&delivery.message), ..delivery.clone() };
        let events: Vec<_> = batch.iter().map(event).collect();
        self.sink.deliver_each(&events, outcomes).await;
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        self.sink.destination(message)
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.sink.probe().await
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        self.sink.check(&self.event(message))
    }

    async fn settled(&self, delivered: &[Delivery]) {
        self.sink.settled(delivered).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use duly_core::Timestamp;

    use super::*;

    /// Keeps what it is given.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<StoredMessage>>);

    #[async_trait]
    impl Sink for Recorder {
        async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
            self.0.lock().unwrap().extend(batch.iter().map(|delivery| delivery.message.clone()));
            outcomes.report_all(batch.iter().map(|_| Ok(String::new())));
        }

        async fn probe(&self) -> Result<(), SinkError> {
            Ok(())
        }
    }

    async fn sent(kind: &str, topic: &str, own: &[(&str, &str)]) -> Vec<(String, String)> {
        let recorder = Arc::new(Recorder::default());
        let config = CloudEventsConfig { source: "/a".into(), kind: None };
        let (id, sink, topic) = ("id".parse().unwrap(), "s".parse().unwrap(), topic.parse().unwrap());
        let mut message = StoredMessage::new(id, sink, topic, Timestamp::from_millis(1_500));
        own.iter().for_each(|(name, value)| message.properties.put(name, value));
        config.wrap(recorder.clone(), kind).deliver(&[Delivery::new(message, 1)]).await;
        let arrived = recorder.0.lock().unwrap().remove(0);
        arrived.properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn what_a_message_has_already_stays_and_http_gets_no_character_that_it_cannot_carry() {
        let own = [("CE-Source", "urn:own"), ("x", "ü")];
        let expected = pairs(&[
            ("CE-Source", "urn:own"),
            ("ce-id", "id"),
            ("ce-specversion", "1.0"),
            ("ce-time", "1970-01-01T00:00:01.500Z"),
            ("ce-type", "Euro%20%E2%82%AC%20%22100%25%22"),
            ("x", "ü"),
        ]);
        assert_eq!(sent("webhook", "Euro € \"100%\"", &own).await, expected);
        let expected = pairs(&[
            ("CE_datacontenttype", "application/octet-stream"),
            ("CE_id", "id"),
            ("CE_source", "/a"),
            ("CE_specversion", "1.0"),
            ("CE_time", "1970-01-01T00:00:01.500Z"),
            ("CE_type", "Euro €"),
        ]);
        assert_eq!(sent("rocketmq", "Euro €", &[]).await, expected);
    }

    #[test]
    fn a_source_is_a_uri_reference() {
        for good in ["/shop/orders", "urn:example:1", "https://a.example/x?y=1#z", "orders", "//a/%20"] {
            assert!(is_uri_reference(good), "{good}");
        }
        for bad in ["", "a b", "ü", "a#b#c", "<a>", "a\n"] {
            assert!(!is_uri_reference(bad), "{bad}");
        }
    }
}
