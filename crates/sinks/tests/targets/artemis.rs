//! The far end of ActiveMQ Artemis: a real broker that all cases share, each with a queue of its own.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use duly_core::{MessageId, Sink, StoredMessage};
use testkit::{
    servers::artemis::{Artemis, shared},
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::RwLock;

use super::{activemq::reader, stomp::StompQueue};

/// Shared by all cases; one that stops the broker has it for itself, until it ends.
pub(super) static USERS: RwLock<()> = RwLock::const_new(());

/// A queue of one case.
pub(crate) struct Queue {
    broker: &'static Artemis,
    stomp: StompQueue,
    /// Taken out of the queue so far: nobody can look into it otherwise.
    read: Arc<Mutex<Vec<Arrival>>>,
}

/// A new queue.
pub(crate) fn artemis() -> Queue {
    Queue { broker: shared(), stomp: StompQueue::new(&USERS), read: Arc::default() }
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
        super::coverage::cannot_show(("activemq", "Artemis"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let (port, name, read) = (self.broker.port(), self.stomp.name.clone(), self.read.clone());
        let all = move || {
            let mut read = read.lock().unwrap();
            read.extend(reader::drain(port, &name));
            read.clone()
        };
        tokio::task::spawn_blocking(all).await.unwrap()
    }

    async fn stop(&self) {
        self.stomp.lock_broker().await;
        self.broker.kill();
    }

    async fn start(&self) {
        tokio::task::block_in_place(|| self.broker.start());
    }
}
