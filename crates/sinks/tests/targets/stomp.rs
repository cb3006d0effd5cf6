//! What the targets of ActiveMQ and Artemis have in common: a queue of a broker that all cases share.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use tokio::sync::RwLock;

use super::broker_access::BrokerAccess;

/// A queue of one case.
pub(crate) struct StompQueue {
    pub(crate) name: String,
    access: Mutex<BrokerAccess>,
    /// Held by the cases that use the broker; one that stops it has it for itself, until it ends.
    users: &'static RwLock<()>,
}

impl StompQueue {
    pub(crate) fn new(users: &'static RwLock<()>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("orders.{}", LAST.fetch_add(1, Ordering::SeqCst));
        Self { name, access: Mutex::new(BrokerAccess::with_others(users)), users }
    }

    pub(crate) fn sink(&self, url: &str) -> Arc<dyn Sink> {
        let config = format!("kind = 'activemq'\nurl = '{url}'\nrequest_timeout = '60s'");
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    pub(crate) fn good(&self, id: MessageId) -> StoredMessage {
        let (sink, topic) = ("target".parse().unwrap(), self.name.parse().unwrap());
        StoredMessage::new(id, sink, topic, Timestamp::from_millis(1))
    }

    /// It would go to two queues.
    pub(crate) fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "orders.a,orders.b".parse().unwrap(), ..self.good(id) }
    }

    /// Waits until no other case uses the broker, and keeps others from it.
    pub(crate) async fn lock_broker(&self) {
        let access = std::mem::take(&mut *self.access.lock().unwrap());
        let access = access.alone(self.users).await;
        *self.access.lock().unwrap() = access;
    }
}
