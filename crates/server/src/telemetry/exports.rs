//! What was exported by OTLP.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::page::Page;

/// Counts of spans and of requests to the collector.
#[derive(Debug, Default)]
pub struct ExportCounts {
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) traces: RequestCounts,
    pub(super) metrics: RequestCounts,
}

/// Requests of one signal.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl ExportCounts {
    pub(super) fn write(&self, page: &mut Page) {
        let help = "Spans that the collector took, and those that were dropped because it did not";
        let spans = page.counter("duly_otlp_spans_total", help);
        spans.value(&[("outcome", "exported")], self.exported.load(Relaxed));
        spans.value(&[("outcome", "dropped")], self.dropped.load(Relaxed));
        let requests = page.counter("duly_otlp_requests_total", "Requests to the collector");
        for (signal, counts) in [("traces", &self.traces), ("metrics", &self.metrics)] {
            for (outcome, count) in [("done", &counts.done), ("failed", &counts.failed)] {
                requests.value(&[("signal", signal), ("outcome", outcome)], count.load(Relaxed));
            }
        }
    }
}
