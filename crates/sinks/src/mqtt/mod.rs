#![doc = include_str!("docs.md")]

mod client;
mod config;
mod failure;
mod message;
mod packet;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Invalid, Outcomes, Sink, SinkError, StoredMessage};

use client::Client;
pub use config::{MqttConfig, MqttVersion};
use settings::Settings;

use crate::connection::Pool;

/// Publishes by MQTT.
pub struct MqttSink {
    settings: Arc<Settings>,
    pool: Arc<Pool<Client>>,
}

impl MqttSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let (address, timeout) = (settings.address.clone(), settings.timeout);
        let settings = Arc::new(settings);
        let pool = Pool::new(Client::new(settings.clone()), address, timeout, clock);
        Self { settings, pool }
    }
}

/// The destination is the topic.
#[async_trait]
impl Sink for MqttSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let mut fit = Vec::with_capacity(batch.len());
        for (index, delivery) in batch.iter().enumerate() {
            match message::check(&delivery.message, &self.settings) {
                Err(fault) => outcomes.report(index, Err(SinkError::never(&fault))),
                Ok(()) => fit.push(index),
            }
        }
        self.pool.deliver(batch, fit, outcomes).await;
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        message::check(message, &self.settings)
    }

    /// Connects, if need be, and pings. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        self.pool.probe().await
    }
}
