//! The far end of RocketMQ: a real name server and broker that all cases share, each with a topic of its own.

#[path = "../rocketmq/reader.rs"]
mod reader;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Body, MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::rocketmq::{Rocketmq, shared},
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::RwLock;

use super::broker_access::BrokerAccess;

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
static USERS: RwLock<()> = RwLock::const_new(());

/// A topic of one case.
pub(crate) struct Topic {
    servers: &'static Rocketmq,
    name: String,
    access: Mutex<BrokerAccess>,
}

/// A new topic.
pub(crate) fn rocketmq() -> Topic {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("topic-{}", LAST.fetch_add(1, Ordering::SeqCst));
    Topic { servers: shared(), name, access: Mutex::new(BrokerAccess::with_others(&USERS)) }
}

#[async_trait]
impl Target for Topic {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!("kind = 'rocketmq'\nnamesrv = '{}'", self.servers.namesrv());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        let (sink, topic) = ("target".parse().unwrap(), self.name.parse().unwrap());
        let message = StoredMessage::new(id, sink, topic, Timestamp::from_millis(1));
        StoredMessage { body: Body::text("body"), ..message }
    }

    /// More in properties than a broker takes.
    fn bad(&self, id: MessageId) -> StoredMessage {
        let mut message = self.good(id);
        for n in 0..9 {
            message.properties.set(&format!("long-{n}"), &"x".repeat(4000)).unwrap();
        }
        message
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("rocketmq", "shown by"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (broker, name) = (self.servers.broker(), self.name.clone());
        tokio::task::spawn_blocking(move || reader::read(&broker, &name)).await.unwrap()
    }

    fn keeps_what_is_empty(&self) -> bool {
        false
    }

    async fn stop(&self) {
        let access = std::mem::take(&mut *self.access.lock().unwrap());
        let access = access.alone(&USERS).await;
        *self.access.lock().unwrap() = access;
        self.servers.kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| self.servers.start());
    }
}
