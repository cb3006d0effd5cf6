//! Messages as CloudEvents, by the real targets of every kind that has a binding.

use duly_core::{Delivery, Key, MessageId};
use duly_sinks::CloudEventsConfig;
use testkit::{block_on, sink::Target};

use crate::servers;

/// Sends one message; its attributes must arrive with this prefix.
fn send(kind: &str, target: &dyn Target, prefix: &str) {
    let attributes =
        CloudEventsConfig { source: "/shop/orders".into(), kind: Some("example.{topic}".into()) };
    let mut message = target.good(MessageId::parse("event-1").unwrap());
    message.body = duly_core::Body::text("paid");
    message.key = Some(Key::parse("k").unwrap());
    let arrived = block_on(async {
        let sink = attributes.wrap(target.sink(), kind);
        sink.check(&message).unwrap();
        sink.deliver(&[Delivery::new(message.clone(), 1)]).await.remove(0).unwrap();
        target.arrived().await
    });
    let [arrival] = &arrived[..] else { panic!("{arrived:?}") };
    let kind = format!("example.{}", message.topic.as_str());
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", "event-1"),
        ("source", "/shop/orders"),
        ("type", &kind),
        ("time", "1970-01-01T00:00:00.001Z"),
    ] {
        let name = format!("{prefix}{name}");
        assert_eq!(arrival.properties.get(&name).map(String::as_str), Some(value), "{arrival:?}");
    }
    assert_eq!(
        (arrival.id.as_str(), arrival.content_type.as_str()),
        ("event-1", "text/plain; charset=utf-8")
    );
}

#[test]
fn a_webhook_gets_the_attributes_as_headers() {
    send("webhook", &super::webhook(), "ce-");
}

#[test]
fn a_record_of_kafka_has_the_attributes_as_headers() {
    if servers::kafka::installed() {
        send("kafka", &super::kafka(), "ce_");
    }
}

#[test]
fn a_message_of_rabbitmq_has_the_attributes_as_headers() {
    if servers::rabbitmq::installed() {
        send("rabbitmq", &super::rabbitmq(), "cloudEvents_");
    }
}

#[test]
fn a_message_of_nats_has_the_attributes_as_headers() {
    if servers::nats::installed() {
        send("nats", &super::nats(), "ce-");
    }
}

#[test]
fn a_message_of_rocketmq_has_the_attributes_as_properties() {
    if servers::rocketmq::installed() {
        send("rocketmq", &super::rocketmq(), "CE_");
    }
}

#[test]
fn a_message_of_activemq_has_the_attributes_as_headers() {
    if servers::activemq::installed() {
        send("activemq", &super::activemq(), "cloudEvents_");
    }
}

#[test]
fn a_message_of_mqtt_has_the_attributes_as_user_properties() {
    if servers::mosquitto::installed() {
        send("mqtt", &super::mqtt(1), "");
    }
}
