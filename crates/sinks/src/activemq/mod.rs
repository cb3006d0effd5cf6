#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod frame;
mod message;
mod settings;
mod stomp;

use std::sync::Arc;

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Invalid, Outcomes, Sink, SinkError, StoredMessage};

pub use config::{ActivemqConfig, ActivemqDestination};
use settings::Settings;
use stomp::Stomp;

use crate::connection::Pool;

/// Sends to ActiveMQ.
pub struct ActivemqSink {
    pool: Arc<Pool<Stomp>>,
}

impl ActivemqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let Settings { address, destination, timeout } = settings;
        Self { pool: Pool::new(Stomp { to: destination, timeout }, address, timeout, clock) }
    }
}

/// The destination is the queue or topic, which is named by the message's topic.
#[async_trait]
impl Sink for ActivemqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let mut fit = Vec::with_capacity(batch.len());
        for (index, delivery) in batch.iter().enumerate() {
            match message::check(&delivery.message) {
                Err(fault) => outcomes.report(index, Err(SinkError::never(&fault))),
                Ok(()) => fit.push(index),
            }
        }
        self.pool.deliver(batch, fit, outcomes).await;
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        message::check(message)
    }

    /// Connects, if need be, and begins a transaction that is given up. Nothing is sent.
    async fn probe(&self) -> Result<(), SinkError> {
        self.pool.probe().await
    }
}
