//! The six, each with a place for messages.

#[path = "../kafka/reader.rs"]
#[expect(dead_code, reason = "nothing is read here")]
mod kafka_reader;

use std::sync::Arc;

use async_nats::jetstream::{self, stream::Config};
use lapin::{Connection, ConnectionProperties, options::QueueDeclareOptions, types::FieldTable};
use testkit::servers::{
    activemq::{self, Activemq},
    kafka::{self, Kafka},
    mosquitto::{self, Mosquitto},
    nats::{self, Nats},
    rabbitmq::{self, Rabbitmq},
    rocketmq::{self, Options, Rocketmq},
};

const TOPIC: &str = "orders";

/// A broker that can hang.
pub(crate) struct Broker {
    pub(crate) name: &'static str,
    pub(crate) config: String,
    pub(crate) topic: &'static str,
    /// SIGSTOP.
    pub(crate) pause: Box<dyn Fn()>,
    /// SIGCONT.
    pub(crate) cont: Box<dyn Fn()>,
}

type Start = fn() -> Broker;

/// Whatever is installed, running.
pub(crate) fn all() -> Vec<Broker> {
    let six: [(fn() -> bool, Start); 6] = [
        (rabbitmq::installed, rabbitmq),
        (kafka::installed, kafka),
        (rocketmq::installed, rocketmq),
        (activemq::installed, activemq),
        (nats::installed, nats),
        (mosquitto::installed, mqtt),
    ];
    six.into_iter().filter(|(installed, _)| installed()).map(|(_, start)| start()).collect()
}

macro_rules! broker {
    ($name:literal, $topic:expr, $config:expr, $server:expr) => {{
        let server = Arc::new($server);
        let (one, other) = (server.clone(), server.clone());
        let (pause, cont) = (Box::new(move || one.pause()), Box::new(move || other.cont()));
        let config = format!("kind = '{}'\n{}", $name, $config(&server));
        Broker { name: $name, config, topic: $topic, pause, cont }
    }};
}

fn rabbitmq() -> Broker {
    let server = Rabbitmq::single();
    testkit::block_on(async {
        let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(TOPIC.into(), durable, FieldTable::default()).await.unwrap();
    });
    broker!("rabbitmq", TOPIC, |server: &Rabbitmq| format!("url = '{}'", server.url()), server)
}

fn kafka() -> Broker {
    let server = Kafka::start_new();
    testkit::block_on(kafka_reader::make_topic(&server.address(), TOPIC, 1, &[]));
    broker!("kafka", TOPIC, |server: &Kafka| format!("brokers = '{}'", server.address()), server)
}

fn rocketmq() -> Broker {
    let server = Rocketmq::with(Options { makes_topics: true, ..Options::default() });
    broker!("rocketmq", TOPIC, |server: &Rocketmq| format!("namesrv = '{}'", server.namesrv()), server)
}

fn activemq() -> Broker {
    let config = |server: &Activemq| format!("url = '{}'", server.url());
    broker!("activemq", "orders.new", config, Activemq::single())
}

fn nats() -> Broker {
    let server = Nats::single();
    testkit::block_on(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let config = Config { name: "ORDERS".into(), subjects: vec![TOPIC.into()], ..Config::default() };
        jetstream::new(client).create_stream(config).await.unwrap();
    });
    broker!("nats", TOPIC, |server: &Nats| format!("url = '{}'", server.url()), server)
}

fn mqtt() -> Broker {
    broker!("mqtt", TOPIC, |server: &Mosquitto| format!("url = '{}'", server.url()), Mosquitto::single())
}
