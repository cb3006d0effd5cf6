//! Where messages go: a folder per target, each behind the [`Sink`](duly_core::Sink) port.

use std::sync::Arc;

use duly_core::{Invalid, Sink};
use serde::Deserialize;

/// Every kind of sink, as it is written in the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SinkConfig {}

impl SinkConfig {
    /// The word that the configuration uses.
    pub fn kind(&self) -> &'static str {
        match *self {}
    }

    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        match *self {}
    }

    /// The sink.
    pub fn build(&self) -> Result<Arc<dyn Sink>, Invalid> {
        match *self {}
    }
}
