//! Requests to the collector.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use duly::{Body, Clock, Delivery, Invalid, MessageId, Sink, SinkError, SinkName, StoredMessage, Topic};
use duly_sinks::webhook::WebhookSink;
use prost::Message;

use super::super::{ExportCounts, exports::RequestCounts};
use crate::config::OtlpSetup;

/// Posts to a collector, as the sink for webhooks does: with its connections, its TLS and its time for a request.
pub(super) struct Collector {
    sink: WebhookSink,
    clock: Arc<dyn Clock>,
    serial: AtomicU64,
    /// Whether the last request of each signal failed.
    failing: [AtomicBool; 2],
    counts: Arc<ExportCounts>,
}

/// What is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    fn counts(self, counts: &ExportCounts) -> &RequestCounts {
        match self {
            Self::Traces => &counts.traces,
            Self::Metrics => &counts.metrics,
        }
    }
}

impl Collector {
    pub(super) fn new(
        setup: &OtlpSetup,
        clock: Arc<dyn Clock>,
        counts: Arc<ExportCounts>,
    ) -> Result<Self, Invalid> {
        let sink = setup.webhook().build(clock.clone())?;
        Ok(Self { sink, clock, serial: AtomicU64::new(0), failing: Default::default(), counts })
    }

    /// Posts once. The log says when it begins to fail, and when it goes well again.
    pub(super) async fn post(&self, signal: Signal, request: &impl Message) -> Result<(), SinkError> {
        let result = self.deliver(signal, request.encode_to_vec().into()).await;
        let RequestCounts { done, failed } = signal.counts(&self.counts);
        if result.is_ok() { done } else { failed }.fetch_add(1, Relaxed);
        let is_new = self.failing[signal as usize].swap(result.is_err(), Relaxed) == result.is_ok();
        match &result {
            Err(error) if is_new => {
                tracing::warn!(signal = signal.word(), %error, "telemetry export failed");
            }
            Ok(()) if is_new => tracing::info!(signal = signal.word(), "telemetry export recovered"),
            _ => {}
        }
        result
    }

    /// Counts spans that the collector took.
    pub(super) fn exported(&self, spans: usize) {
        self.counts.exported.fetch_add(spans as u64, Relaxed);
    }

    /// Counts spans that it did not.
    pub(super) fn dropped(&self, spans: usize) {
        self.counts.dropped.fetch_add(spans as u64, Relaxed);
    }

    async fn deliver(&self, signal: Signal, body: Bytes) -> Result<(), SinkError> {
        let path = Topic::parse(&format!("v1/{}", signal.word()));
        let path = path.map_err(|fault| SinkError::refused(fault.detail))?;
        let now = self.clock.now().wall();
        let id = MessageId::generate(now, self.serial.fetch_add(1, Relaxed).into());
        let mut message = StoredMessage::new(id, SinkName::queue(), path, now);
        message.body = Body::bytes(body);
        let answers = self.sink.deliver(&[Delivery::new(message, 1)]).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }
}
