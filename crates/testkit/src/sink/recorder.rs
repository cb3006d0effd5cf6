//! A sink that writes down what it is given: the reference, and an end for tests of other things.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use duly_core::{
    Delivery, Message, MessageId, Outcomes, Sink, SinkError, SinkErrorKind, SinkName, Timestamp,
};

use super::{Arrival, Target};

/// A sink that writes down what it is given, and refuses the topic `refused`.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    arrived: Arc<Mutex<Vec<Delivery>>>,
    away: Arc<AtomicBool>,
}

impl Recorder {
    /// What arrived, in its order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.arrived.lock().unwrap().clone()
    }

    /// The ids that arrived, each once.
    pub fn ids(&self) -> BTreeSet<MessageId> {
        self.deliveries().into_iter().map(|delivery| delivery.message.id).collect()
    }

    fn reached(&self) -> Result<(), SinkError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(SinkError::new(SinkErrorKind::Unreachable, "the recorder is away"));
        }
        Ok(())
    }

    fn take(&self, delivery: &Delivery) -> Result<String, SinkError> {
        self.reached()?;
        if delivery.message.topic.as_str() == "refused" {
            return Err(SinkError::new(SinkErrorKind::Refused, "this topic is refused"));
        }
        let mut arrived = self.arrived.lock().unwrap();
        arrived.push(delivery.clone());
        Ok(arrived.len().to_string())
    }
}

impl Recorder {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        batch.iter().map(|delivery| self.take(delivery)).collect()
    }
}

#[async_trait]
impl Sink for Recorder {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.reached()
    }
}

#[async_trait]
impl Target for Recorder {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    fn bad(&self, id: MessageId) -> Message {
        let sink: SinkName = "target".parse().unwrap();
        Message::new(id, sink, "refused".parse().unwrap(), Timestamp::from_millis(1))
    }

    async fn arrived(&self) -> Vec<Arrival> {
        self.deliveries().iter().map(Arrival::of).collect()
    }

    async fn stop(&self) {
        self.away.store(true, Ordering::SeqCst);
    }

    async fn start(&self) {
        self.away.store(false, Ordering::SeqCst);
    }
}
