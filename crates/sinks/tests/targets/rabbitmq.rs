//! The far end of RabbitMQ: a queue of its own at the server that all cases share, behind a wire of its own.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Body, MessageId, Properties, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use lapin::{
    Connection, ConnectionProperties,
    message::BasicGetMessage,
    options::{BasicGetOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use testkit::{
    servers::{
        proxy::Proxy,
        rabbitmq::{MESSAGE_BYTES_MAX, shared},
    },
    sink::{Arrival, Target},
};
use tokio::sync::Mutex;

pub(crate) struct Queue {
    name: String,
    proxy: Proxy,
    /// What was there when somebody looked.
    seen: Mutex<Vec<Arrival>>,
}

pub(crate) fn rabbitmq() -> Queue {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("suite-{}", LAST.fetch_add(1, Ordering::Relaxed));
    Queue { name, proxy: Proxy::to(shared().port()), seen: Mutex::default() }
}

impl Queue {
    /// The queue, which is made when it is first asked for.
    async fn declare(&self) -> lapin::Channel {
        self.declare_as(&self.name, &[]).await
    }

    async fn declare_as(&self, name: &str, arguments: &[(&str, AMQPValue)]) -> lapin::Channel {
        let connection = Connection::connect(&shared().url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut table = FieldTable::default();
        for (key, value) in arguments {
            table.insert((*key).into(), value.clone());
        }
        channel.queue_declare(name.into(), options, table).await.unwrap();
        channel
    }

    fn to(&self, topic: &str, id: MessageId) -> StoredMessage {
        StoredMessage { topic: topic.parse().unwrap(), ..self.good(id) }
    }
}

fn arrival(message: &BasicGetMessage) -> Arrival {
    let properties = &message.delivery.properties;
    let headers = properties.headers().clone().unwrap();
    let get = |name: &str| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => Some(text.to_string()),
        _ => None,
    };
    let text = |name: &str| get(name).unwrap();
    let id = text("duly-id");
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), id);
    assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
    Arrival {
        id: id.parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: message.delivery.routing_key.to_string(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: properties.content_type().as_ref().unwrap().to_string(),
        body: message.delivery.data.clone().into(),
        properties: headers.inner().keys().map(|name| (name.to_string(), text(name.as_str()))).collect(),
    }
}

#[async_trait]
impl Target for Queue {
    fn sink(&self) -> Arc<dyn Sink> {
        // Made here, as the target itself is made where nothing can be awaited.
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.declare()));
        let config = format!("kind = 'rabbitmq'\nurl = 'amqp://guest:guest@127.0.0.1:{}'", self.proxy.port());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        let topic = self.name.parse().unwrap();
        StoredMessage::new(id, "target".parse().unwrap(), topic, Timestamp::from_millis(1))
    }

    /// It asks RabbitMQ to send copies elsewhere.
    fn bad(&self, id: MessageId) -> StoredMessage {
        let mut properties = Properties::default();
        properties.set("CC", "elsewhere").unwrap();
        StoredMessage { properties, ..self.good(id) }
    }

    /// It closes the channel over it.
    fn refused_there(&self, id: MessageId) -> Option<StoredMessage> {
        let body = Body::bytes(vec![b'x'; MESSAGE_BYTES_MAX + 1]);
        Some(StoredMessage { body, ..self.good(id) })
    }

    fn not_shown(&self, state: &str) -> Option<String> {
        super::shown::not_shown(("rabbitmq", "shown by"), state)
    }

    /// Only the broker itself publishes there.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("amq.rabbitmq.trace/x", id))
    }

    /// There is no room in it.
    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        let name = format!("{}-full", self.name);
        let overflow = AMQPValue::LongString("reject-publish".into());
        let full = [("x-max-length", AMQPValue::LongInt(0)), ("x-overflow", overflow)];
        self.declare_as(&name, &full).await;
        Some(self.to(&name, id))
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let channel = self.declare().await;
        let mut seen = self.seen.lock().await;
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = channel.basic_get(self.name.as_str().into(), options).await.unwrap() {
            seen.push(arrival(&message));
        }
        seen.clone()
    }

    async fn stop(&self) {
        self.proxy.shut();
    }

    async fn start(&self) {
        self.proxy.open();
    }
}
