//! The far end of MQTT: a real broker, and a subscriber whose session lasts.

#[path = "../mqtt/reader.rs"]
mod reader;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::{artemis, mosquitto::Mosquitto},
    sink::{Arrival, CannotShow, Target},
};

use reader::{Published, Reader};

use super::broker_access::BrokerAccess;

/// A broker with one subscriber.
pub(crate) struct Subscribed {
    broker: Mosquitto,
    reader: Arc<Mutex<Reader>>,
    qos: u8,
}

/// With this quality of service.
pub(crate) fn mqtt(qos: u8) -> Subscribed {
    let broker = Mosquitto::single();
    let reader = Arc::new(Mutex::new(Reader::of(broker.port(), "topic")));
    Subscribed { broker, reader, qos }
}

fn arrival(published: Published) -> Arrival {
    let get = |name: &str| published.user.get(name).cloned();
    let text = |name: &str| get(name).unwrap();
    assert!(published.qos > 0);
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: published.topic.clone(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: published.content_type.clone().unwrap(),
        body: published.body.clone(),
        properties: published.user.clone(),
    }
}

#[async_trait]
impl Target for Subscribed {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!(
            "kind = 'mqtt'\nurl = '{}'\nqos = {}\nrequest_timeout = '60s'",
            self.broker.url(),
            self.qos
        );
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    /// Nothing can be published to a pattern. What the broker itself refuses it closes the connection over: that has tests of its
    /// own.
    fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "topic/+".parse().unwrap(), ..self.good(id) }
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("mqtt", "Mosquitto"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let reader = self.reader.clone();
        let read = tokio::task::spawn_blocking(move || reader.lock().unwrap().read()).await.unwrap();
        read.into_iter().map(arrival).collect()
    }

    async fn stop(&self) {
        self.broker.kill();
    }

    async fn start(&self) {
        self.broker.start();
    }
}

/// A topic of Artemis, the broker that all cases share, with one subscriber.
pub(crate) struct ArtemisTopic {
    name: String,
    reader: Arc<Mutex<Reader>>,
    access: Mutex<BrokerAccess>,
}

/// By its acceptor for MQTT 5.
pub(crate) fn mqtt_artemis() -> ArtemisTopic {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("orders/suite/{}", LAST.fetch_add(1, Ordering::SeqCst));
    let access = Mutex::new(BrokerAccess::with_others(&super::artemis::USERS));
    let reader = Reader::at_artemis(&name.replace('/', "-"), artemis::shared().mqtt_port(), &name);
    ArtemisTopic { name, reader: Arc::new(Mutex::new(reader)), access }
}

#[async_trait]
impl Target for ArtemisTopic {
    fn sink(&self) -> Arc<dyn Sink> {
        let url = artemis::shared().mqtt_url();
        let config = format!("kind = 'mqtt'\nurl = '{url}'\nrequest_timeout = '60s'");
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        let (sink, topic) = ("target".parse().unwrap(), self.name.parse().unwrap());
        StoredMessage::new(id, sink, topic, Timestamp::from_millis(1))
    }

    fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "orders/+".parse().unwrap(), ..self.good(id) }
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("mqtt", "Artemis"), state)
    }

    /// The user may write below `orders/` only.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(StoredMessage { topic: "closed/x".parse().unwrap(), ..self.good(id) })
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let reader = self.reader.clone();
        let read = tokio::task::spawn_blocking(move || reader.lock().unwrap().read()).await.unwrap();
        read.into_iter().map(arrival).collect()
    }

    async fn stop(&self) {
        let access = std::mem::take(&mut *self.access.lock().unwrap());
        let access = access.alone(&super::artemis::USERS).await;
        *self.access.lock().unwrap() = access;
        artemis::shared().kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| artemis::shared().start());
    }
}
