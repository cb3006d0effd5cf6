//! Connects spans with the contexts of messages, by the layer that exports them.

use std::collections::HashMap;

use duly::{Properties, TraceContext, Tracer};
use opentelemetry::{
    Context,
    propagation::TextMapPropagator,
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The tracer of a server whose spans are exported.
#[derive(Debug, Default)]
pub(crate) struct SpanTracer(TraceContextPropagator);

impl SpanTracer {
    /// Without a span, if `context` is none by the standard.
    fn read(&self, context: &TraceContext) -> Context {
        let mut carrier = HashMap::from([(Properties::TRACEPARENT.to_owned(), context.parent.clone())]);
        carrier.extend(context.state.clone().map(|state| (Properties::TRACESTATE.to_owned(), state)));
        self.0.extract_with_context(&Context::new(), &carrier)
    }

    fn write(&self, span: &SpanContext) -> Option<TraceContext> {
        let mut carrier = HashMap::new();
        self.0.inject_context(&Context::new().with_remote_span_context(span.clone()), &mut carrier);
        let context = TraceContext::new(carrier.remove(Properties::TRACEPARENT)?);
        Some(match carrier.remove(Properties::TRACESTATE).filter(|state| !state.is_empty()) {
            Some(state) => context.state(state),
            None => context,
        })
    }
}

impl Tracer for SpanTracer {
    fn set_parent(&self, span: &Span, context: &TraceContext) {
        let context = self.read(context);
        if context.has_active_span() {
            // A span that nobody exports has no parent.
            let _ = span.set_parent(context);
        }
    }

    fn add_link(&self, span: &Span, context: &TraceContext) {
        span.add_link(self.read(context).span().span_context().clone());
    }

    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let span = context.span().span_context().clone();
        span.is_sampled().then(|| self.write(&span)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_written_as_it_was_read() {
        let tracer = SpanTracer::default();
        let given =
            TraceContext::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").state("a=1,b=2");
        let read = tracer.read(&given);
        assert_eq!(tracer.write(read.span().span_context()), Some(given));
        assert!(!tracer.read(&TraceContext::new("nonsense")).has_active_span());
    }
}
