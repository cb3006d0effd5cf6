//! The spans of calls of the store: `accept`, `claim` and `settle`. One that nobody listens to costs a comparison.

use std::sync::Arc;

use duly_core::{
    Now, Store, StoredMessage,
    store::{Claim, Claimed, Insert, Inserted, Settled, StoreError},
};
use tracing::{Instrument, Span, debug_span, field::Empty};

use super::{DeliverSpan, TraceContext, Tracer};

/// Contexts that one span is linked to, as exporters keep them.
const LINKS_MAX: usize = 128;

/// Makes the spans of one Duly.
#[derive(Clone, Default)]
pub(crate) struct Spans {
    tracer: Option<Arc<dyn Tracer>>,
}

impl Spans {
    pub(crate) fn new(tracer: Option<Arc<dyn Tracer>>) -> Self {
        Self { tracer }
    }

    pub(super) fn tracer(&self) -> Option<&dyn Tracer> {
        self.tracer.as_deref()
    }

    /// The span of an insert. From here on its messages carry its context, if they have room for it.
    pub(crate) fn accept(&self, batch: &mut [Insert], properties_max: usize) -> Span {
        let span = debug_span!(
            "accept",
            otel.kind = "producer",
            messages = batch.len(),
            sink = Empty,
            topic = Empty,
            id = Empty,
            accepted = Empty,
            error = Empty,
            otel.status_code = Empty,
        );
        if span.is_disabled() {
            return span;
        }
        if let [Insert { message, .. }] = &*batch {
            record_message(&span, message);
        }
        if let Some(tracer) = self.tracer() {
            connect(tracer, &span, batch, properties_max);
        }
        span
    }

    /// Runs an insert in its span.
    pub(crate) async fn run_insert(
        span: Span,
        insert: impl Future<Output = Result<Vec<Inserted>, StoreError>>,
    ) -> Result<Vec<Inserted>, StoreError> {
        let inserted = insert.instrument(span.clone()).await;
        if !span.is_disabled() {
            let is_new = |inserted: &&Inserted| **inserted == Inserted::Accepted;
            record(&span, "accepted", &inserted, |all| all.iter().filter(is_new).count());
        }
        inserted
    }

    /// Runs a claim in its span.
    pub(crate) async fn run_claim(
        &self,
        store: &dyn Store,
        now: Now,
        claim: Claim,
    ) -> Result<Claimed, StoreError> {
        let span = debug_span!(
            parent: None,
            "claim",
            lane = %claim.lane,
            messages = Empty,
            error = Empty,
            otel.status_code = Empty,
        );
        let claimed = store.claim(now, claim).instrument(span.clone()).await;
        if !span.is_disabled() {
            record(&span, "messages", &claimed, |claimed| claimed.messages.len());
            let claimed = claimed.iter().flat_map(|claimed| &claimed.messages);
            self.link(&span, claimed.map(|leased| &leased.message));
        }
        claimed
    }

    /// The span of one attempt to deliver.
    pub(crate) fn deliver(&self, message: &StoredMessage, attempt: u32) -> DeliverSpan {
        let span = debug_span!(
            parent: None,
            "deliver",
            otel.kind = if message.sink.is_queue() { "consumer" } else { "producer" },
            sink = Empty,
            topic = Empty,
            id = Empty,
            attempt,
            outcome = Empty,
            error = Empty,
            otel.status_code = Empty,
        );
        if !span.is_disabled() {
            record_message(&span, message);
            self.link(&span, [message]);
        }
        DeliverSpan::new(span)
    }

    /// The span of a settle of so many claims, with their messages as far as they are known. It has a lane if all have the same.
    pub(crate) fn settle<'a>(
        &self,
        count: usize,
        messages: impl IntoIterator<Item = &'a StoredMessage>,
    ) -> Span {
        let span = debug_span!(
            parent: None,
            "settle",
            lane = Empty,
            messages = count,
            settled = Empty,
            error = Empty,
            otel.status_code = Empty,
        );
        if !span.is_disabled() {
            let messages: Vec<_> = messages.into_iter().collect();
            let lane = messages.first().map(|message| message.lane());
            if let Some(lane) = lane.filter(|lane| messages.iter().all(|message| message.lane() == *lane)) {
                span.record("lane", tracing::field::display(lane));
            }
            self.link(&span, messages);
        }
        span
    }

    /// Runs a settle in its span.
    pub(crate) async fn run_settle(
        span: Span,
        settle: impl Future<Output = Result<Vec<Settled>, StoreError>>,
    ) -> Result<Vec<Settled>, StoreError> {
        let settled = settle.instrument(span.clone()).await;
        if !span.is_disabled() {
            record(&span, "settled", &settled, |all| all.iter().filter(|one| **one == Settled::Done).count());
        }
        settled
    }

    fn link<'a>(&self, span: &Span, messages: impl IntoIterator<Item = &'a StoredMessage>) {
        let Some(tracer) = self.tracer() else { return };
        let contexts = messages.into_iter().filter_map(|message| TraceContext::of(&message.properties));
        contexts.take(LINKS_MAX).for_each(|context| tracer.add_link(span, &context));
    }
}

/// The span continues the trace that all messages have in common, or is linked to those that they have. A message carries its own
/// trace on if its neighbours have others.
fn connect(tracer: &dyn Tracer, span: &Span, batch: &mut [Insert], properties_max: usize) {
    let mut contexts: Vec<_> =
        batch.iter().map(|insert| TraceContext::of(&insert.message.properties)).collect();
    let first = contexts.first().cloned().flatten();
    let shared = first.filter(|first| contexts.iter().all(|context| context.as_ref() == Some(first)));
    match &shared {
        Some(parent) => {
            tracer.set_parent(span, parent);
            contexts.fill(None);
        }
        None => contexts.iter().flatten().take(LINKS_MAX).for_each(|context| tracer.add_link(span, context)),
    }
    let Some(own) = tracer.context(span) else { return };
    for (insert, other) in batch.iter_mut().zip(contexts) {
        let properties = &mut insert.message.properties;
        if other.is_none() && (shared.is_some() || properties.len() < properties_max) {
            own.clone().put(properties);
        }
    }
}

fn record_message(span: &Span, message: &StoredMessage) {
    span.record("sink", message.sink.as_str());
    span.record("topic", message.topic.as_str());
    span.record("id", message.id.as_str());
}

fn record<T>(span: &Span, field: &str, result: &Result<T, StoreError>, count: impl FnOnce(&T) -> usize) {
    match result {
        Ok(done) => _ = span.record(field, count(done)),
        Err(error) => record_error(span, error),
    }
}

pub(super) fn record_error(span: &Span, error: &dyn std::fmt::Display) {
    span.record("error", tracing::field::display(error));
    span.record("otel.status_code", "ERROR");
}
