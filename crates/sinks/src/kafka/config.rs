//! The configuration of a sink into Kafka, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{KafkaSink, remarks::remarks, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call: enough that a partition gets its share as one batch.
const BATCH: usize = 512;

/// Kafka, as it is written in the configuration. Everything is optional but `brokers`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConfig {
    /// `host:port`, several with commas between or as a list; one is enough to find the others.
    pub brokers: OneOrMany<String>,
    /// Who we are, where the brokers ask for it.
    pub user: Option<String>,
    /// What proves it.
    pub password: Option<Secret>,
    /// How it is proved.
    pub mechanism: Option<Mechanism>,
    /// Whether to speak TLS.
    pub tls: bool,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, the client's own first.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
}

/// How a user proves a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum Mechanism {
    /// The password is told as it is: not without TLS, but in a network of one's own.
    #[serde(rename = "plain")]
    Plain,
    /// Only the knowledge of it is proved.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// The same with a longer hash.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

impl KafkaConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<KafkaSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(KafkaSink::new(settings, clock))
    }

    /// What works at the brokers and is odd all the same. Delivers nothing.
    pub(crate) async fn inspect(&self, topics: &[&str]) -> Vec<Finding> {
        match Settings::read(self) {
            Ok(settings) => remarks(settings.client, settings.timeout, topics).await,
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
