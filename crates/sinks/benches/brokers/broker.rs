//! What every broker can do here.

use std::sync::Arc;

use async_trait::async_trait;
use duly::{Sink, SystemClock};
use duly_core::Delivery;
use duly_sinks::SinkConfig;
use testkit::servers;

use crate::{
    activemq::Activemq, kafka::Kafka, kafka_cluster::KafkaCluster, mqtt::Mqtt, nats::Nats,
    nats_cluster::NatsCluster, rabbitmq::Rabbitmq, rabbitmq_cluster::RabbitmqCluster, rocketmq::Rocketmq,
    rocketmq_cluster::RocketmqCluster,
};

/// How a broker keeps what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As it comes.
    AsUsual,
    /// On the disk before it acknowledges, where it can be told so.
    Safely,
}

/// A topic of a cluster whose servers survive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bystander {
    pub(crate) topic: &'static str,
    /// So many kills, from the first, affect neither the topic nor the connection to it.
    pub(crate) unaffected_kills: usize,
}

/// A running broker, with a place for messages.
#[async_trait]
pub(crate) trait Broker: Send + Sync {
    /// The name of its sink.
    fn name(&self) -> &'static str;

    /// The configuration of its sink.
    fn config(&self) -> String;

    /// Where messages go.
    fn topic(&self) -> &'static str {
        "orders"
    }

    /// A topic that the kills do not affect, if there is one.
    fn bystander(&self) -> Option<Bystander> {
        None
    }

    /// What it does before it acknowledges, if it keeps messages safely.
    fn safety(&self) -> &'static str;

    /// Whether what it acknowledged survives a kill, as it is set here.
    fn keeps_what_it_acknowledged(&self) -> bool {
        true
    }

    /// Whether it knows a message again that it has.
    fn knows_copies(&self) -> bool {
        false
    }

    /// A bare client.
    async fn bare(&self) -> Box<dyn Bare>;

    /// A bare client for the topic that the kills do not affect, with a connection of its own.
    async fn bare_bystander(&self) -> Option<Box<dyn Bare>> {
        None
    }

    /// The ids of all that it has, once for each copy.
    async fn ids(&self) -> Vec<String>;

    /// kill -9.
    fn kill(&self);

    /// Starts it again, and returns when it is there.
    fn start(&self);

    /// SIGSTOP.
    fn pause(&self);

    /// SIGCONT.
    fn cont(&self);
}

/// The switches of a broker are those of the server in this field of it.
macro_rules! switched_by {
    ($server:tt) => {
        fn kill(&self) {
            self.$server.kill();
        }

        fn start(&self) {
            self.$server.start();
        }

        fn pause(&self) {
            self.$server.pause();
        }

        fn cont(&self) {
            self.$server.cont();
        }
    };
}
pub(crate) use switched_by;

/// The client crate, or the protocol, and nothing else.
#[async_trait]
pub(crate) trait Bare: Send {
    /// Publishes all of these with the guarantees of the sink, so many under way at a time, and returns when all are acknowledged.
    async fn publish(&mut self, messages: &[Delivery], window: usize);
}

/// A kind of broker, not yet running.
pub(crate) struct BrokerKind {
    pub(crate) name: &'static str,
    pub(crate) installed: fn() -> bool,
    pub(crate) start: fn(Keep) -> Arc<dyn Broker>,
}

pub(crate) const KINDS: [BrokerKind; 10] = [
    BrokerKind {
        name: "rabbitmq",
        installed: servers::rabbitmq::installed,
        start: |keep| Arc::new(Rabbitmq::new(keep)),
    },
    BrokerKind {
        name: "rabbitmq_cluster",
        installed: servers::rabbitmq::installed,
        start: |keep| Arc::new(RabbitmqCluster::new(keep)),
    },
    BrokerKind {
        name: "kafka",
        installed: servers::kafka::installed,
        start: |keep| Arc::new(Kafka::new(keep)),
    },
    BrokerKind {
        name: "kafka_cluster",
        installed: servers::kafka::installed,
        start: |keep| Arc::new(KafkaCluster::new(keep)),
    },
    BrokerKind {
        name: "rocketmq",
        installed: servers::rocketmq::installed,
        start: |keep| Arc::new(Rocketmq::new(keep)),
    },
    BrokerKind {
        name: "activemq",
        installed: servers::activemq::installed,
        start: |_| Arc::new(Activemq::new()),
    },
    BrokerKind { name: "nats", installed: servers::nats::installed, start: |_| Arc::new(Nats::new()) },
    BrokerKind {
        name: "nats_cluster",
        installed: servers::nats::installed,
        start: |_| Arc::new(NatsCluster::new()),
    },
    BrokerKind {
        name: "mqtt",
        installed: servers::mosquitto::installed,
        start: |keep| Arc::new(Mqtt::new(keep)),
    },
    BrokerKind {
        name: "rocketmq_cluster",
        installed: servers::rocketmq::installed,
        start: |keep| Arc::new(RocketmqCluster::new(keep)),
    },
];

/// Its sink, and the most messages of one call.
pub(crate) fn sink(broker: &dyn Broker) -> (Arc<dyn Sink>, usize) {
    let config: SinkConfig = toml::from_str(&broker.config()).unwrap();
    let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
    (sink, config.batch())
}
