//! Which traces are exported.

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceId},
};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

/// A span within a trace follows the trace. One that begins a trace follows the traces that it is linked to, so that the delivery of
/// an exported message is exported; the others are exported by the ratio.
pub(super) fn sampler(ratio: f64) -> Sampler {
    Sampler::ParentBased(Box::new(LinkBased(Sampler::TraceIdRatioBased(ratio))))
}

#[derive(Debug, Clone)]
struct LinkBased(Sampler);

impl ShouldSample for LinkBased {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let by_ratio = self.0.should_sample(parent, trace, name, kind, attributes, links);
        if links.is_empty() {
            return by_ratio;
        }
        let is_sampled = links.iter().any(|link| link.span_context.is_sampled());
        let decision = if is_sampled { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        SamplingResult { decision, ..by_ratio }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceState};

    use super::*;

    fn context(flags: TraceFlags) -> SpanContext {
        SpanContext::new(TraceId::from(1), SpanId::from(1), flags, true, TraceState::default())
    }

    fn is_sampled(ratio: f64, parent: Option<TraceFlags>, links: &[TraceFlags]) -> bool {
        let parent = parent.map(|flags| Context::new().with_remote_span_context(context(flags)));
        let links: Vec<_> = links.iter().map(|flags| Link::with_context(context(*flags))).collect();
        let trace = TraceId::from(7);
        let result =
            sampler(ratio).should_sample(parent.as_ref(), trace, "deliver", &SpanKind::Producer, &[], &links);
        result.decision == SamplingDecision::RecordAndSample
    }

    #[test]
    fn a_delivery_is_exported_as_its_message_was() {
        let (yes, no) = (TraceFlags::SAMPLED, TraceFlags::default());
        for ratio in [0.0, 1.0] {
            assert!(is_sampled(ratio, Some(yes), &[]) && !is_sampled(ratio, Some(no), &[]));
            assert!(is_sampled(ratio, None, &[no, yes]) && !is_sampled(ratio, None, &[no]));
            assert_eq!(is_sampled(ratio, None, &[]), ratio == 1.0);
        }
    }
}
