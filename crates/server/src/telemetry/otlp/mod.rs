//! Traces and metrics by OTLP, in protobuf over HTTP: ADR 0047.
//!
//! A bounded queue, and a task for each signal: a collector that is away, hangs or refuses costs the spans that find no room, and nothing else.

mod collector;
mod metrics;
mod sampler;
mod spans;
mod tracer;

use std::{sync::Arc, time::Duration};

use duly::SystemClock;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::{sync::watch, task::JoinHandle};
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    registry::LookupSpan,
};

use self::{collector::Collector, spans::SpanQueue, tracer::SpanTracer};
use super::{ExportCounts, Telemetry};
use crate::{config::OtlpSetup, serve::StartError};

/// What is exported at the end has this long.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Exports traces and metrics while it lives.
pub struct Otlp {
    provider: SdkTracerProvider,
    collector: Arc<Collector>,
    resource: Resource,
    interval: Duration,
    counts: Arc<ExportCounts>,
    stopping: watch::Sender<bool>,
    spans: JoinHandle<()>,
}

impl Otlp {
    /// Begins to export, as the node of this name. Must be called in a runtime.
    pub fn start(setup: &OtlpSetup, node: &str) -> Result<Self, StartError> {
        let counts: Arc<ExportCounts> = Arc::default();
        let fault = |why: String| StartError(format!("cannot export telemetry: {why}"));
        let clock = SystemClock::new().map_err(|error| fault(error.to_string()))?;
        let collector = Collector::new(setup, Arc::new(clock), counts.clone());
        let collector = Arc::new(collector.map_err(|invalid| fault(invalid.to_string()))?);
        let resource = resource(setup, node);
        let (queue, waiting) = SpanQueue::new(counts.clone());
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(sampler::sampler(setup.sample_ratio))
            .with_resource(resource.clone());
        let (stopping, stopped) = watch::channel(false);
        let spans = tokio::spawn(spans::export(waiting, collector.clone(), resource.clone(), stopped));
        let interval = setup.interval;
        Ok(Self { provider: provider.build(), collector, resource, interval, counts, stopping, spans })
    }

    /// The layer that listens to the spans of this process.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("duly"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        // The spans of a message. A filter that is known beforehand costs nothing where others write to the log.
        layer.with_filter(Targets::new().with_target("duly::trace", LevelFilter::DEBUG))
    }

    /// Connects the spans of a Duly with the traces of its messages.
    pub(crate) fn trace(&self, builder: duly::Builder) -> duly::Builder {
        builder.tracer(SpanTracer::default())
    }

    /// What was exported.
    pub(crate) fn counts(&self) -> Arc<ExportCounts> {
        self.counts.clone()
    }

    /// Exports the metrics of a server, too, until it ends.
    pub(crate) fn export_metrics(&self, telemetry: &Arc<Telemetry>) {
        let (telemetry, collector) = (Arc::downgrade(telemetry), self.collector.clone());
        tokio::spawn(metrics::export(telemetry, collector, self.resource.clone(), self.interval));
    }

    /// Exports the metrics as they are now, for the last time.
    pub(crate) async fn last_metrics(&self, telemetry: &Telemetry) {
        let exported = metrics::export_once(telemetry, &self.collector, &self.resource);
        // Nobody is waited for longer at a stop.
        let _ = tokio::time::timeout(STOP_WITHIN, exported).await;
    }

    /// Exports the spans that wait, as far as the collector takes them at once.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        let abort = self.spans.abort_handle();
        if tokio::time::timeout(STOP_WITHIN, self.spans).await.is_err() {
            abort.abort();
        }
    }
}

/// The attributes of this process.
fn resource(setup: &OtlpSetup, node: &str) -> Resource {
    let usual = [
        ("service.name", "duly"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", node),
    ];
    let usual = usual.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = std::collections::BTreeMap::from(usual);
    all.extend(setup.resource.clone());
    let attributes = all.into_iter().map(|(name, value)| KeyValue::new(name, value));
    // Not the default one, which reads the environment by itself.
    Resource::builder_empty().with_attributes(attributes).build()
}
