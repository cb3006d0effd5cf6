//! The span `deliver`: one attempt of one message.

use std::sync::{Mutex, PoisonError};

use duly_core::{Delivery, Outcome, schedule::AttemptResult};
use tracing::Span;

use super::{Spans, spans::record_error};

/// The span of one attempt. Dropped without a result, the attempt was given up, and its outcome is unknown.
pub(crate) struct DeliverSpan {
    pub(crate) span: Span,
    is_over: bool,
}

impl DeliverSpan {
    pub(super) fn new(span: Span) -> Self {
        Self { span, is_over: false }
    }

    /// Ends it.
    pub(crate) fn end(mut self, result: &AttemptResult) {
        self.is_over = true;
        if self.span.is_disabled() {
            return;
        }
        match result {
            AttemptResult::Delivered { .. } => self.record(Outcome::Delivered),
            AttemptResult::Failed { outcome, detail, .. } => {
                self.record(*outcome);
                record_error(&self.span, detail);
            }
        }
    }

    fn record(&self, outcome: Outcome) {
        self.span.record("outcome", outcome.as_str());
    }
}

impl Drop for DeliverSpan {
    fn drop(&mut self) {
        if !self.is_over && !self.span.is_disabled() {
            self.record(Outcome::Unknown);
            record_error(&self.span, &"the call was given up");
        }
    }
}

/// The spans of one call of a sink, by the index of the message. Nothing at all if nobody listens.
pub(crate) struct DeliverSpans(Option<Mutex<Vec<Option<DeliverSpan>>>>);

impl DeliverSpans {
    /// Begins them. What is delivered carries their contexts.
    pub(crate) fn begin(spans: &Spans, batch: &mut [Delivery]) -> Self {
        let mut begun = Vec::new();
        for Delivery { message, attempt, .. } in batch {
            let span = spans.deliver(message, *attempt);
            if span.span.is_disabled() && begun.is_empty() {
                return Self(None);
            }
            if let Some(context) = spans.tracer().and_then(|tracer| tracer.context(&span.span)) {
                context.put(&mut message.properties);
            }
            begun.push(Some(span));
        }
        Self(Some(Mutex::new(begun)))
    }

    /// Ends one, if this is the first result of its message.
    pub(crate) fn end(&self, index: usize, result: &AttemptResult) {
        let Some(spans) = &self.0 else { return };
        let span = spans.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index).and_then(Option::take);
        if let Some(span) = span {
            span.end(result);
        }
    }
}
