//! Where messages go: look, pause, try.

use serde_json::json;

use crate::{Client, Error, target::segment, wire::SinksAnswer};

impl Client {
    /// The configured sinks.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn sinks(&self) -> Result<SinksAnswer, Error> {
        self.read("/v1/sinks").await
    }

    /// Delivers nothing more to this sink until it is resumed.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn pause_sink(&self, name: &str) -> Result<(), Error> {
        self.post(&at(name, "pause"), &json!({})).await
    }

    /// Delivers to this sink again.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn resume_sink(&self, name: &str) -> Result<(), Error> {
        self.post(&at(name, "resume"), &json!({})).await
    }

    /// Asks the server to try this sink; nothing is delivered. Refused with
    /// [`SinkUnreachable`](crate::ErrorCode::SinkUnreachable) if it could not deliver now.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn probe_sink(&self, name: &str) -> Result<(), Error> {
        self.post(&at(name, "probe"), &json!({})).await
    }
}

fn at(name: &str, verb: &str) -> String {
    format!("/v1/sinks/{}/{verb}", segment(name))
}
