//! Where messages go: a folder per target, each behind the [`Sink`] port.
//!
//! A kind of sink is a feature, a variant of [`SinkConfig`], and a folder with `mod.rs` and `docs.md`.

#[cfg(feature = "activemq")]
pub mod activemq;
mod cloudevents;
mod config_values;
#[cfg(any(feature = "activemq", feature = "mqtt"))]
mod connection;
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats"))]
mod exchange;
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats", feature = "rocketmq"))]
mod idle_pool;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats"))]
mod link;
#[cfg(feature = "mqtt")]
pub mod mqtt;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis_streams")]
pub mod redis_streams;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats", feature = "rocketmq"))]
mod stream;
#[cfg(any(
    feature = "webhook",
    feature = "redis_streams",
    feature = "rabbitmq",
    feature = "kafka",
    feature = "rocketmq",
    feature = "activemq",
    feature = "nats",
    feature = "mqtt"
))]
mod tls;
#[cfg(feature = "webhook")]
pub mod webhook;
#[cfg(any(
    feature = "webhook",
    feature = "redis_streams",
    feature = "rabbitmq",
    feature = "kafka",
    feature = "rocketmq",
    feature = "activemq",
    feature = "nats",
    feature = "mqtt"
))]
mod within;

use std::{sync::Arc, time::Duration};

use duly_core::{Clock, Invalid, Sink};
use serde::Deserialize;

#[cfg(feature = "activemq")]
pub use activemq::ActivemqConfig;
pub use cloudevents::CloudEventsConfig;
pub use config_values::{OneOrMany, Span};
pub use duly_core::Secret;
#[cfg(feature = "kafka")]
pub use kafka::KafkaConfig;
#[cfg(feature = "mqtt")]
pub use mqtt::MqttConfig;
#[cfg(feature = "nats")]
pub use nats::NatsConfig;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitmqConfig;
#[cfg(feature = "redis_streams")]
pub use redis_streams::RedisStreamsConfig;
#[cfg(feature = "rocketmq")]
pub use rocketmq::RocketmqConfig;
#[cfg(feature = "webhook")]
pub use webhook::WebhookConfig;

/// Every kind that a build can have, each the name of its feature.
pub const KINDS: [&str; 8] =
    ["webhook", "redis_streams", "rabbitmq", "kafka", "rocketmq", "activemq", "nats", "mqtt"];

/// Every kind of sink of this build, as it is written in the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SinkConfig {
    /// An HTTP endpoint.
    #[cfg(feature = "webhook")]
    Webhook(WebhookConfig),
    /// Redis Streams.
    #[cfg(feature = "redis_streams")]
    RedisStreams(RedisStreamsConfig),
    /// RabbitMQ.
    #[cfg(feature = "rabbitmq")]
    Rabbitmq(RabbitmqConfig),
    /// NATS.
    #[cfg(feature = "nats")]
    Nats(NatsConfig),
    /// Kafka.
    #[cfg(feature = "kafka")]
    Kafka(KafkaConfig),
    /// RocketMQ.
    #[cfg(feature = "rocketmq")]
    Rocketmq(RocketmqConfig),
    /// ActiveMQ.
    #[cfg(feature = "activemq")]
    Activemq(ActivemqConfig),
    /// MQTT.
    #[cfg(feature = "mqtt")]
    Mqtt(MqttConfig),
}

/// The same expression for the settings of whichever kind it is.
macro_rules! with_config {
    ($self:ident, $config:ident => $do:expr) => {
        match $self {
            #[cfg(feature = "webhook")]
            Self::Webhook($config) => $do,
            #[cfg(feature = "redis_streams")]
            Self::RedisStreams($config) => $do,
            #[cfg(feature = "rabbitmq")]
            Self::Rabbitmq($config) => $do,
            #[cfg(feature = "nats")]
            Self::Nats($config) => $do,
            #[cfg(feature = "kafka")]
            Self::Kafka($config) => $do,
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq($config) => $do,
            #[cfg(feature = "activemq")]
            Self::Activemq($config) => $do,
            #[cfg(feature = "mqtt")]
            Self::Mqtt($config) => $do,
        }
    };
}

impl SinkConfig {
    /// The word that the configuration uses.
    pub fn kind(&self) -> &'static str {
        match self {
            #[cfg(feature = "webhook")]
            Self::Webhook(_) => "webhook",
            #[cfg(feature = "redis_streams")]
            Self::RedisStreams(_) => "redis_streams",
            #[cfg(feature = "rabbitmq")]
            Self::Rabbitmq(_) => "rabbitmq",
            #[cfg(feature = "nats")]
            Self::Nats(_) => "nats",
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => "kafka",
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq(_) => "rocketmq",
            #[cfg(feature = "activemq")]
            Self::Activemq(_) => "activemq",
            #[cfg(feature = "mqtt")]
            Self::Mqtt(_) => "mqtt",
        }
    }

    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        with_config!(self, config => config.check())
    }

    /// The most messages of one call that the sink works on at the same time. A larger batch only waits in line.
    pub fn batch(&self) -> usize {
        with_config!(self, config => config.batch())
    }

    /// How long one call takes at most. The lane's timeout must be longer, or it cuts off what is going well.
    pub fn call_timeout(&self) -> Duration {
        with_config!(self, config => config.request_timeout())
    }

    /// What a probe of this kind cannot check, in words for `duly doctor`.
    pub fn not_probed(&self) -> Option<&'static str> {
        match self.kind() {
            "webhook" => Some("what its paths answer"),
            "kafka" | "rocketmq" => Some("whether this user may write to a topic"),
            "nats" | "mqtt" | "activemq" => Some("what this user may publish to"),
            _ => None,
        }
    }

    /// The sink. It tells the time by `clock`.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Sink>, Invalid> {
        with_config!(self, config => Ok(Arc::new(config.build(clock)?)))
    }

    /// Warnings about a reachable target: settings that allow duplicates, and those of `topics` that it would refuse. Delivers nothing.
    /// A message whose outcome is unknown is tried again within `retry_within`.
    pub async fn inspect(
        &self,
        clock: Arc<dyn Clock>,
        retry_within: Duration,
        topics: &[&str],
    ) -> Vec<Finding> {
        let (inspected, rest) = topics.split_at(topics.len().min(INSPECTED_TOPICS_MAX));
        let mut findings = self.inspect_topics(clock, retry_within, inspected).await;
        if !rest.is_empty() {
            let detail =
                format!("only the first {} of {} topics were asked about", inspected.len(), topics.len());
            findings.push(Finding {
                detail,
                remedy: "see for yourself whether the target has the others".into(),
            });
        }
        findings
    }

    async fn inspect_topics(
        &self,
        clock: Arc<dyn Clock>,
        retry_within: Duration,
        topics: &[&str],
    ) -> Vec<Finding> {
        match self {
            #[cfg(feature = "nats")]
            Self::Nats(config) => config.inspect(clock, retry_within, topics).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(config) => config.inspect(topics).await,
            #[cfg(feature = "rabbitmq")]
            Self::Rabbitmq(config) => config.inspect(clock, topics).await,
            #[cfg(feature = "redis_streams")]
            Self::RedisStreams(config) => config.inspect(clock, topics).await,
            #[cfg(feature = "activemq")]
            Self::Activemq(config) => config.inspect(),
            #[cfg(feature = "mqtt")]
            Self::Mqtt(config) => config.inspect(),
            #[cfg(feature = "rocketmq")]
            Self::Rocketmq(config) => config.inspect(clock, topics).await,
            _ => {
                // The others have nothing to say, and no use for these.
                let _ = (clock, retry_within, topics);
                Vec::new()
            }
        }
    }
}

/// Topics that a target is asked about, at most: each may be a question of its own.
const INSPECTED_TOPICS_MAX: usize = 64;

/// A warning about the settings of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What it is.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
}
