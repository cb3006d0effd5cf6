//! Spans, and the trace contexts that travel with messages (W3C Trace Context).

mod deliver;
mod spans;

use duly_core::Properties;
use tracing::Span;

pub(crate) use deliver::{DeliverSpan, DeliverSpans};
pub(crate) use spans::Spans;

/// The W3C trace context of a span, as the properties of a message carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`, if there is one.
    pub state: Option<String>,
}

impl TraceContext {
    /// A context without `tracestate`.
    pub fn new(parent: impl Into<String>) -> Self {
        Self { parent: parent.into(), state: None }
    }

    /// Sets `tracestate`.
    #[must_use]
    pub fn state(self, state: impl Into<String>) -> Self {
        Self { state: Some(state.into()), ..self }
    }

    /// The context that these properties carry.
    fn of(properties: &Properties) -> Option<Self> {
        let parent = properties.get(Properties::TRACEPARENT)?.to_owned();
        Some(Self { parent, state: properties.get(Properties::TRACESTATE).map(str::to_owned) })
    }

    /// Takes the place of the context that these properties carry.
    fn put(self, properties: &mut Properties) {
        properties.put(Properties::TRACEPARENT, &self.parent);
        match self.state {
            Some(state) => properties.put(Properties::TRACESTATE, &state),
            None => properties.remove(Properties::TRACESTATE),
        }
    }
}

/// Connects the spans of this process with the trace contexts of messages. `tracing` has no word for contexts of other
/// processes; an implementation knows the subscriber that exports the spans.
///
/// With one, a message carries the context of the span `accept` while it waits, its span `deliver` is linked to that, and
/// what is delivered carries the context of `deliver`. Without one, a message carries what its producer gave it.
///
/// Each method is called before the span is entered.
pub trait Tracer: Send + Sync + 'static {
    /// Makes `context` the parent of the span.
    fn set_parent(&self, span: &Span, context: &TraceContext);

    /// Links the span to `context`.
    fn add_link(&self, span: &Span, context: &TraceContext);

    /// The context of the span; `None` if it is not recorded.
    fn context(&self, span: &Span) -> Option<TraceContext>;
}
