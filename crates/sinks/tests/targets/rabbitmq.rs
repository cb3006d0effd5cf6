//! The far end of RabbitMQ: a queue of its own at the server that all cases share, behind a wire of its own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Body, MessageId, Properties, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    message::BasicGetMessage,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use testkit::{
    servers::{
        proxy::Proxy,
        rabbitmq::{MESSAGE_BYTES_MAX, shared},
    },
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::Mutex;

pub(crate) struct Queue {
    name: String,
    proxy: Proxy,
    /// What was there when somebody looked.
    seen: Mutex<Vec<Arrival>>,
    /// Whether there is a queue besides that stands still, and whether it goes on by now.
    is_suspended: AtomicBool,
    is_released: AtomicBool,
}

pub(crate) fn rabbitmq() -> Queue {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("suite-{}", LAST.fetch_add(1, Ordering::Relaxed));
    let (is_suspended, is_released) = (AtomicBool::new(false), AtomicBool::new(false));
    Queue { name, proxy: Proxy::to(shared().port()), seen: Mutex::default(), is_suspended, is_released }
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

    fn suspended(&self) -> String {
        format!("{}-suspended", self.name)
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
        // A quorum queue adds numbers of its own.
        properties: headers
            .inner()
            .keys()
            .filter_map(|name| Some((name.to_string(), get(name.as_str())?)))
            .collect(),
    }
}

#[async_trait]
impl Target for Queue {
    fn sink(&self) -> Arc<dyn Sink> {
        // Made here, as the target itself is made where nothing can be awaited.
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.declare()));
        let url = format!("amqp://guest:guest@127.0.0.1:{}", self.proxy.port());
        // What is slow comes in the end, however slow the machine.
        let timeout = if self.is_suspended.load(Ordering::SeqCst) { "\nrequest_timeout = '60s'" } else { "" };
        let config = format!("kind = 'rabbitmq'\nurl = '{url}'{timeout}");
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

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("rabbitmq", "shown by"), state)
    }

    /// A quorum queue that stands still. The connection of the sink is new to it.
    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        let name = self.suspended();
        if !self.is_suspended.swap(true, Ordering::SeqCst) {
            let quorum = [("x-queue-type", AMQPValue::LongString("quorum".into()))];
            self.declare_as(&name, &quorum).await;
            tokio::task::block_in_place(|| shared().suspend_queues(&[&name]));
        }
        Some(self.to(&name, id))
    }

    async fn release(&self) {
        tokio::task::block_in_place(|| shared().resume_queues(&[&self.suspended()]));
        self.is_released.store(true, Ordering::SeqCst);
    }

    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        self.slow(id).await
    }

    /// Only other exchanges publish there.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        let name = format!("{}-inside", self.name);
        let (kind, table) = (ExchangeKind::Direct, FieldTable::default());
        let options = ExchangeDeclareOptions { internal: true, ..ExchangeDeclareOptions::default() };
        self.declare().await.exchange_declare(name.as_str().into(), kind, options, table).await.unwrap();
        Some(self.to(&format!("{name}/x"), id))
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
        // Nobody reads from a queue that stands still.
        let suspended = self.is_released.load(Ordering::SeqCst).then(|| self.suspended());
        for name in [Some(self.name.clone()), suspended].into_iter().flatten() {
            while let Some(message) = channel.basic_get(name.as_str().into(), options).await.unwrap() {
                seen.push(arrival(&message));
            }
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
