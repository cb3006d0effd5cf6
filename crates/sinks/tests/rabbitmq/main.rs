//! The sink into RabbitMQ against real servers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod broken;
mod cluster;
mod config;
mod failover;
mod failures;
mod isolation;
mod routes;
mod tls;
mod whole;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    message::BasicGetMessage,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use testkit::{
    servers::rabbitmq::shared,
    sink::{one, to},
};

/// A sink to `url`, with more settings.
fn sink_with(url: &str, settings: &str) -> Arc<dyn Sink> {
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'rabbitmq'\nurl = '{url}'\n{settings}")).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

/// The arguments of a queue that can be made silent.
fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments
}

/// What a test itself asks the broker.
struct Reader(Channel);

impl Reader {
    async fn new(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        Self(connection.create_channel().await.unwrap())
    }

    async fn shared() -> Self {
        Self::new(&shared().url()).await
    }

    /// A durable queue with a name that nobody else has.
    async fn queue(&self) -> String {
        self.queue_with(FieldTable::default()).await
    }

    async fn queue_with(&self, arguments: FieldTable) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("queue-{}", LAST.fetch_add(1, Ordering::Relaxed));
        self.queue_named(&name, arguments).await
    }

    async fn queue_named(&self, name: &str, arguments: FieldTable) -> String {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.0.queue_declare(name.into(), options, arguments).await.unwrap();
        name.to_owned()
    }

    /// A queue that can be made silent.
    async fn quorum_queue(&self) -> String {
        self.queue_with(quorum()).await
    }

    /// An exchange by topics, and a queue bound to it.
    async fn exchange(&self, name: &str, pattern: &str) -> String {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        self.0
            .exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default())
            .await
            .unwrap();
        let queue = self.queue().await;
        let bound = self.0.queue_bind(
            queue.as_str().into(),
            name.into(),
            pattern.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.unwrap();
        queue
    }

    /// An exchange that only other exchanges publish to: the broker forbids it to every user, an administrator as well.
    async fn internal_exchange(&self, name: &str) {
        let options =
            ExchangeDeclareOptions { durable: true, internal: true, ..ExchangeDeclareOptions::default() };
        self.0
            .exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default())
            .await
            .unwrap();
    }

    async fn next(&self, queue: &str) -> Option<BasicGetMessage> {
        self.0.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap()
    }

    /// Takes all messages out of a queue: their ids.
    async fn ids(&self, queue: &str) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(message) = self.next(queue).await {
            ids.push(message.delivery.properties.message_id().as_ref().unwrap().to_string());
        }
        ids
    }
}
