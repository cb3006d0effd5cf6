//! The far end of ActiveMQ: a real broker that all cases share, each with a queue of its own.

#[path = "../activemq/reader.rs"]
pub(super) mod reader;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use duly_core::{Delivery, MessageId, Sink, StoredMessage};
use testkit::{
    servers::activemq::{Activemq, shared},
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::RwLock;

use super::stomp::StompQueue;

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
static USERS: RwLock<()> = RwLock::const_new(());

/// A queue of one case.
pub(crate) struct Queue {
    broker: &'static Activemq,
    stomp: StompQueue,
    is_blocked: AtomicBool,
}

/// A new queue.
pub(crate) fn activemq() -> Queue {
    Queue { broker: shared(), stomp: StompQueue::new(&USERS), is_blocked: AtomicBool::new(false) }
}

#[async_trait]
impl Target for Queue {
    fn sink(&self) -> Arc<dyn Sink> {
        self.stomp.sink(&self.broker.url())
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        self.stomp.good(id)
    }

    fn bad(&self, id: MessageId) -> StoredMessage {
        self.stomp.bad(id)
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("activemq", "ActiveMQ"), state)
    }

    /// It holds one message already, and waits for somebody to read it.
    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        let blocked = format!("orders.blocked.{}", self.stomp.name);
        let message = StoredMessage { topic: blocked.parse().unwrap(), ..self.good(id) };
        if !self.is_blocked.swap(true, Ordering::SeqCst) {
            let first = StoredMessage { id: "first".parse().unwrap(), ..message.clone() };
            self.sink().deliver(&[Delivery::new(first, 1)]).await.remove(0).unwrap();
        }
        Some(message)
    }

    /// The user may not write to it.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(StoredMessage { topic: "closed".parse().unwrap(), ..self.good(id) })
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (port, name) = (self.broker.port(), self.stomp.name.clone());
        tokio::task::spawn_blocking(move || reader::read(port, &name)).await.unwrap()
    }

    async fn stop(&self) {
        self.stomp.lock_broker().await;
        self.broker.kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| self.broker.start());
    }
}
