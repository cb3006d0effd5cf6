//! The far end of each sink.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod activemq;
mod artemis;
mod broker_access;
mod cloudevents;
pub(crate) mod coverage;
mod kafka;
mod mqtt;
mod nats;
mod rabbitmq;
mod redis_streams;
mod rocketmq;
mod stomp;
mod webhook;

pub(crate) use activemq::activemq;
pub(crate) use artemis::artemis;
pub(crate) use kafka::kafka;
pub(crate) use mqtt::{mqtt, mqtt_artemis};
pub(crate) use nats::nats;
pub(crate) use rabbitmq::rabbitmq;
pub(crate) use redis_streams::{cluster, sentinels, single};
pub(crate) use rocketmq::rocketmq;
pub(crate) use webhook::webhook;
