//! The configuration of a sink into Redis Streams, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{RedisStreamsSink, settings::Settings};
use crate::{Finding, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call, unless the configuration says otherwise: one round trip for all of them.
const BATCH: usize = 128;

/// Redis Streams, as they are written in the configuration. Everything is optional but `url`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisStreamsConfig {
    /// `redis://host`, `rediss://host`, `redis-cluster://a,b,c` or `redis-sentinel://a,b,c/name`. Secret, as it may hold a
    /// password.
    pub url: Option<Secret>,
    /// The most entries of a stream, about. No limit if not set.
    pub max_len: Option<u64>,
    /// How old the oldest entry of a stream may be, about. No limit if not set.
    pub max_age: Option<Span>,
    /// How long a stream remembers the messages of which nobody recorded that they were delivered.
    pub remember: Option<Span>,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, the client's own first.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}

impl RedisStreamsConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<RedisStreamsSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        RedisStreamsSink::new(settings, clock)
    }

    /// Which of `topics` would not be taken. Nothing is written.
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
