//! The configuration of a sink into NATS, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{NatsSink, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call, unless the configuration says otherwise: one round trip for all of them.
const BATCH: usize = 256;

/// NATS, as it is written in the configuration. Everything is optional but `url`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NatsConfig {
    /// `nats://host`, `tls://host`, several hosts of one cluster after commas or as a list. Secret, as it may hold a password.
    pub url: OneOrMany<Secret>,
    /// What takes the messages.
    pub mode: NatsMode,
    /// A token to log in with, where the URL has neither user nor token.
    pub token: Option<Secret>,
    /// A `.creds` file to log in with.
    pub creds_file: Option<PathBuf>,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with a certificate that says who we are, for servers that ask for one.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub client_key: Option<PathBuf>,
}

/// What takes the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NatsMode {
    /// A stream, which stores each message before it acknowledges it.
    #[default]
    Jetstream,
    /// Whoever listens at that moment: **at most once**.
    Core,
}

impl NatsConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<NatsSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(NatsSink::new(settings, clock))
    }

    /// What works and is odd all the same. A message whose outcome is unknown is tried again within `again`.
    pub(crate) async fn inspect(
        &self,
        clock: Arc<dyn Clock>,
        again: Duration,
        topics: &[&str],
    ) -> Vec<Finding> {
        match self.build(clock) {
            Ok(sink) => sink.inspect(again, topics).await,
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
