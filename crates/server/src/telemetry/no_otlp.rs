//! What takes the place of `otlp` in a build without the feature `otel`: nothing, as such a configuration is refused.

use std::sync::Arc;

use super::{ExportCounts, Telemetry};
use crate::{config::OtlpSetup, serve::StartError};

/// There is none.
pub enum Otlp {}

impl Otlp {
    /// Fails.
    pub fn start(_: &OtlpSetup, _: &str) -> Result<Self, StartError> {
        Err(StartError("this build exports no telemetry; build it with the feature otel".into()))
    }

    pub(crate) fn counts(&self) -> Arc<ExportCounts> {
        match *self {}
    }

    pub(crate) fn trace(&self, _: duly::Builder) -> duly::Builder {
        match *self {}
    }

    pub(crate) fn export_metrics(&self, _: &Arc<Telemetry>) {
        match *self {}
    }

    pub(crate) async fn last_metrics(&self, _: &Telemetry) {
        match *self {}
    }

    /// Never called.
    pub async fn stop(self) {
        match self {}
    }
}
