//! The far end of ActiveMQ: a real broker that all cases share, each with a queue of its own.

#[path = "../activemq/reader.rs"]
pub(super) mod reader;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Delivery, MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::activemq::{Activemq, shared},
    sink::{Arrival, Target},
};
use tokio::sync::RwLock;

use super::turns::Turn;

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
static USERS: RwLock<()> = RwLock::const_new(());

/// A queue of one case.
pub(crate) struct Queue {
    broker: &'static Activemq,
    name: String,
    turn: Mutex<Turn>,
    is_blocked: AtomicBool,
}

/// A new queue.
pub(crate) fn activemq() -> Queue {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("orders.{}", LAST.fetch_add(1, Ordering::SeqCst));
    Queue {
        broker: shared(),
        name,
        turn: Mutex::new(Turn::with_others(&USERS)),
        is_blocked: AtomicBool::new(false),
    }
}

#[async_trait]
impl Target for Queue {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!("kind = 'activemq'\nurl = '{}'\nrequest_timeout = '60s'", self.broker.url());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        let (sink, topic) = ("target".parse().unwrap(), self.name.parse().unwrap());
        StoredMessage::new(id, sink, topic, Timestamp::from_millis(1))
    }

    /// It would go to two queues.
    fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "orders.a,orders.b".parse().unwrap(), ..self.good(id) }
    }

    fn not_shown(&self, state: &str) -> Option<String> {
        super::shown::not_shown(("activemq", "ActiveMQ"), state)
    }

    /// It holds one message already, and waits for somebody to read it.
    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        let blocked = format!("orders.blocked.{}", self.name);
        let message = StoredMessage { topic: blocked.parse().unwrap(), ..self.good(id) };
        if !self.is_blocked.swap(true, Ordering::SeqCst) {
            let first = StoredMessage { id: "first".parse().unwrap(), ..message.clone() };
            self.sink().deliver(&[Delivery::new(first, 1)]).await.remove(0).unwrap();
        }
        Some(message)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (port, name) = (self.broker.port(), self.name.clone());
        tokio::task::spawn_blocking(move || reader::read(port, &name)).await.unwrap()
    }

    async fn stop(&self) {
        let turn = std::mem::take(&mut *self.turn.lock().unwrap());
        let turn = turn.alone(&USERS).await;
        *self.turn.lock().unwrap() = turn;
        self.broker.kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| self.broker.start());
    }
}
