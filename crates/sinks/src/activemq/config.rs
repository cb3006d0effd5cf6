//! The configuration of a sink into ActiveMQ, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{ActivemqSink, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call: all of them are on their way before the first receipt is waited for.
const BATCH: usize = 256;

/// ActiveMQ, as it is written in the configuration. Everything is optional but `url`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActivemqConfig {
    /// `stomp://host`, `stomp+ssl://host`, several hosts after commas or as a list. Secret, as it may hold a password.
    pub url: OneOrMany<Secret>,
    /// Whether topics of messages name queues or topics.
    pub destination: ActivemqDestination,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, and its chain.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}

/// What the topic of a message names: a queue or a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivemqDestination {
    /// A queue: each message waits there for one consumer.
    #[default]
    Queue,
    /// A topic: each message goes to whoever has subscribed by then.
    Topic,
}

impl ActivemqConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<ActivemqSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(ActivemqSink::new(settings, clock))
    }

    /// Warnings about settings that are valid and unusual.
    pub(crate) fn inspect(&self) -> Vec<Finding> {
        let is_topic = self.destination == ActivemqDestination::Topic;
        let remark = || {
            Finding {
            detail: "a topic acknowledges what nobody has subscribed to, and keeps nothing of it".into(),
            remedy: "give each consumer a durable subscription before the first message is due, or write destination = \"queue\"".into(),
        }
        };
        is_topic.then(remark).into_iter().collect()
    }

    pub(crate) fn batch(&self) -> usize {
        BATCH
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout.map_or(REQUEST_TIMEOUT, |span| span.0)
    }
}
