//! Spans on their way to the collector.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use opentelemetry::Context;
use opentelemetry_proto::{
    tonic::collector::trace::v1::ExportTraceServiceRequest,
    transform::trace::tonic::group_spans_by_resource_and_scope,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};
use tokio::{
    sync::{
        mpsc::{self, Receiver, Sender},
        watch,
    },
    time::{Instant, timeout, timeout_at},
};

use super::{
    super::ExportCounts,
    collector::{Collector, Signal},
};

/// Spans that wait; more are dropped.
const WAITING_MAX: usize = 2_048;
/// Spans of one request.
const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// The waits between attempts of one batch. Later spans are worth more than another one.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// Takes the spans that have ended. It never waits.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: Sender<SpanData>,
    counts: Arc<ExportCounts>,
}

impl SpanQueue {
    pub(super) fn new(counts: Arc<ExportCounts>) -> (Self, Receiver<SpanData>) {
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        (Self { spans, counts }, waiting)
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Exports batch after batch. After the stop it exports what still waits, and ends.
pub(super) async fn export(
    mut waiting: Receiver<SpanData>,
    collector: Arc<Collector>,
    resource: Resource,
    stopping: watch::Receiver<bool>,
) {
    loop {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        tokio::select! {
            _ = waiting.recv_many(&mut batch, BATCH_MAX) => gather(&mut waiting, &mut batch, &stopping).await,
            () = stopped(&stopping) => while batch.len() < BATCH_MAX
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            },
        }
        if batch.is_empty() {
            return;
        }
        send(batch, &collector, &resource, &stopping).await;
    }
}

async fn gather(
    waiting: &mut Receiver<SpanData>,
    batch: &mut Vec<SpanData>,
    stopping: &watch::Receiver<bool>,
) {
    let end = Instant::now() + GATHER;
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        tokio::select! {
            more = timeout_at(end, waiting.recv_many(batch, room)) => if !matches!(more, Ok(1..)) { return },
            () = stopped(stopping) => return,
        }
    }
}

/// Ends when the server stops.
async fn stopped(stopping: &watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    let _ = stopping.clone().wait_for(|stopping| *stopping).await;
}

/// Sends a batch, again if that can help and the server goes on.
async fn send(
    batch: Vec<SpanData>,
    collector: &Collector,
    resource: &Resource,
    stopping: &watch::Receiver<bool>,
) {
    let count = batch.len();
    let request = ExportTraceServiceRequest {
        resource_spans: group_spans_by_resource_and_scope(batch, &resource.into()),
    };
    let mut waits = WAITS.into_iter();
    loop {
        let Err(error) = collector.post(Signal::Traces, &request).await else {
            return collector.exported(count);
        };
        let wait = waits.next().filter(|_| error.kind != duly::SinkErrorKind::Refused);
        let Some(wait) = wait.filter(|_| !*stopping.borrow()) else {
            return collector.dropped(count);
        };
        // Ends early at the stop.
        let _ = timeout(wait, stopped(stopping)).await;
    }
}
