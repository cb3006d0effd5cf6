//! The configuration of a sink into RabbitMQ, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{RabbitmqSink, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call, unless the configuration says otherwise: one round trip for all of them.
const BATCH: usize = 256;

/// RabbitMQ, as it is written in the configuration. Everything is optional but `url`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RabbitmqConfig {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://…`; several nodes of a cluster after commas or as a list. Secret,
    /// as it may hold a password.
    pub url: OneOrMany<Secret>,
    /// The exchange of all messages; the topic is the routing key then. Without it the topic names both.
    pub exchange: Option<String>,
    /// Whether the routing key ends with a dot and the tag of the message, if it has one.
    pub tag_in_key: bool,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the client's certificate, for a broker that asks for one.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}

impl RabbitmqConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<RabbitmqSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(RabbitmqSink::new(settings, clock))
    }

    /// What works and is odd all the same.
    pub(crate) async fn inspect(&self, clock: Arc<dyn Clock>, topics: &[&str]) -> Vec<Finding> {
        match self.build(clock) {
            Ok(sink) => sink.inspect(topics).await,
            Err(_) => Vec::new(),
        }
    }

    pub(crate) fn batch(&self) -> usize {
        BATCH
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout.map_or(REQUEST_TIMEOUT, |span| span.0)
    }
}
