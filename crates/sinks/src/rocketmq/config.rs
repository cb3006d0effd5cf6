//! The configuration of a sink into RocketMQ, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{RocketmqSink, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// Default time limit of a call: one second less than that of a lane.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Default maximum of messages in one call. All are sent before the first answer is awaited.
const BATCH: usize = 256;

/// RocketMQ, as it is written in the configuration. Everything is optional but `namesrv`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RocketmqConfig {
    /// The name servers, `host:port`, several with commas or semicolons between, or as a list.
    pub namesrv: OneOrMany<String>,
    /// The access key, where brokers require one.
    pub access_key: Option<String>,
    /// The secret key.
    pub secret_key: Option<Secret>,
    /// Whether to speak TLS.
    pub tls: bool,
    /// A PEM file with certificate authorities that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, the client's own first.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// Accept `FLUSH_DISK_TIMEOUT`, `FLUSH_SLAVE_TIMEOUT` and `SLAVE_NOT_AVAILABLE` as delivered. Default true.
    pub accept_weaker: Option<bool>,
}

impl RocketmqConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<RocketmqSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(RocketmqSink::new(settings, clock))
    }

    /// Warnings about settings of the brokers that are valid and unusual.
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
