//! Where messages go: a folder per target, each behind the [`Sink`] port.
//!
//! A kind of sink is a variant of [`SinkConfig`] and a folder with `mod.rs` and `docs.md`.

pub mod redis_streams;
pub mod webhook;
mod written;

use std::{sync::Arc, time::Duration};

use duly_core::{Clock, Invalid, Sink};
use serde::Deserialize;

pub use redis_streams::RedisStreamsConfig;
pub use webhook::WebhookConfig;
pub use written::{Hidden, OneOrMany, Span};

/// Every kind of sink, as it is written in the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SinkConfig {
    /// An HTTP endpoint.
    Webhook(WebhookConfig),
    /// Redis Streams.
    RedisStreams(RedisStreamsConfig),
}

impl SinkConfig {
    /// The word that the configuration uses.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::RedisStreams(_) => "redis_streams",
        }
    }

    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        match self {
            Self::Webhook(config) => config.check(),
            Self::RedisStreams(config) => config.check(),
        }
    }

    /// The most messages of one call that the sink works on at the same time. A larger batch only waits in line.
    pub fn batch(&self) -> usize {
        match self {
            Self::Webhook(config) => config.parallel(),
            Self::RedisStreams(config) => config.batch(),
        }
    }

    /// How long one call takes at most. The lane's timeout must be longer, or it cuts off what is going well.
    pub fn call_timeout(&self) -> Duration {
        match self {
            Self::Webhook(config) => config.request_timeout(),
            Self::RedisStreams(config) => config.request_timeout(),
        }
    }

    /// The sink. It tells the time by `clock`.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Sink>, Invalid> {
        match self {
            Self::Webhook(config) => Ok(Arc::new(config.build(clock)?)),
            Self::RedisStreams(config) => Ok(Arc::new(config.build(clock)?)),
        }
    }
}
