//! The far end of ActiveMQ Artemis: a real broker that all cases share, each with a queue of its own.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::artemis::{Artemis, shared},
    sink::{Arrival, Target},
};
use tokio::sync::RwLock;

use super::{activemq::reader, turns::Turn};

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
static USERS: RwLock<()> = RwLock::const_new(());

/// A queue of one case.
pub(crate) struct Queue {
    broker: &'static Artemis,
    name: String,
    turn: Mutex<Turn>,
    /// Taken out of the queue so far: nobody can look into it otherwise.
    read: Arc<Mutex<Vec<Arrival>>>,
}

/// A new queue.
pub(crate) fn artemis() -> Queue {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("orders.{}", LAST.fetch_add(1, Ordering::SeqCst));
    Queue { broker: shared(), name, turn: Mutex::new(Turn::with_others(&USERS)), read: Arc::default() }
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
        super::shown::not_shown(("activemq", "Artemis"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (port, name, read) = (self.broker.port(), self.name.clone(), self.read.clone());
        let all = move || {
            let mut read = read.lock().unwrap();
            read.extend(reader::drain(port, &name));
            read.clone()
        };
        tokio::task::spawn_blocking(all).await.unwrap()
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
