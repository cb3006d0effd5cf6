//! The far end of Kafka: a real broker that all cases share, each with a topic of its own.

#[path = "../kafka/reader.rs"]
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
    servers::kafka::{Kafka, shared},
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::RwLock;

use super::broker_access::BrokerAccess;
use reader::{make_topic, read};

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
static USERS: RwLock<()> = RwLock::const_new(());

/// A topic of one case.
pub(crate) struct Topic {
    broker: &'static Kafka,
    name: String,
    small: String,
    access: Mutex<BrokerAccess>,
}

impl Topic {
    fn to(&self, topic: &str, id: MessageId) -> StoredMessage {
        StoredMessage { topic: topic.parse().unwrap(), ..self.good(id) }
    }
}

/// A new topic, and one that takes only small records.
pub(crate) fn kafka() -> Topic {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::SeqCst);
    let (name, small) = (format!("topic-{number}"), format!("small-{number}"));
    let broker = shared();
    let access = BrokerAccess::with_others(&USERS);
    testkit::block_on(async {
        make_topic(&broker.address(), &name, 3, &[]).await;
        make_topic(&broker.address(), &small, 1, &[("max.message.bytes", "1000")]).await;
    });
    Topic { broker, name, small, access: Mutex::new(access) }
}

#[async_trait]
impl Target for Topic {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!("kind = 'kafka'\nbrokers = '{}'\nrequest_timeout = '6s'", self.broker.address());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        let (sink, topic) = ("target".parse().unwrap(), self.name.parse().unwrap());
        StoredMessage::new(id, sink, topic, Timestamp::from_millis(1))
    }

    /// Larger than its topic takes.
    fn bad(&self, id: MessageId) -> StoredMessage {
        let mut message = StoredMessage { topic: self.small.parse().unwrap(), ..self.good(id) };
        message.properties.set("long", &"x".repeat(3000)).unwrap();
        message
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("kafka", "shown by"), state)
    }

    /// It is not there.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("never-made", id))
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (address, name) = (self.broker.address(), self.name.clone());
        tokio::task::spawn_blocking(move || read(&address, &name)).await.unwrap()
    }

    async fn stop(&self) {
        let access = std::mem::take(&mut *self.access.lock().unwrap());
        let access = access.alone(&USERS).await;
        *self.access.lock().unwrap() = access;
        self.broker.kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| self.broker.start());
    }
}
