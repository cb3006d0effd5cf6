//! The page of metrics by OTLP: the metrics of `/metrics`, under the same names.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use duly::HistogramSnapshot;
use opentelemetry_proto::{
    tonic::{
        collector::metrics::v1::ExportMetricsServiceRequest,
        common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
        metrics::v1::{
            AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
            ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
        },
        resource::v1::Resource as Attributes,
    },
    transform::common::tonic::ResourceAttributesWithSchema,
};
use opentelemetry_sdk::Resource;

use super::{
    super::{
        Telemetry,
        page::{Family, Kind, Page, Sample, Value, buckets},
    },
    collector::{Collector, Signal},
};

/// The names of the semantic conventions, which Prometheus writes otherwise.
const CONVENTIONS: [(&str, &str); 4] = [
    ("http_server_request_duration_seconds", "http.server.request.duration"),
    ("http_request_method", "http.request.method"),
    ("http_route", "http.route"),
    ("http_response_status_code", "http.response.status_code"),
];

/// Exports at every interval until the server ends.
pub(super) async fn export(
    telemetry: Weak<Telemetry>,
    collector: Arc<Collector>,
    resource: Resource,
    interval: Duration,
) {
    let mut ticks = tokio::time::interval(interval);
    // A collector that was slow is not asked twice for that.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(telemetry) = telemetry.upgrade() else { return };
        export_once(&telemetry, &collector, &resource).await;
    }
}

pub(super) async fn export_once(telemetry: &Telemetry, collector: &Collector, resource: &Resource) {
    let page = telemetry.page().await;
    let now = telemetry.duly.clock().now().wall_micros() * 1_000;
    let age = telemetry.duly.clock().now().mono().since(telemetry.began);
    let began = now.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    // Whoever listens is told by the counts; the next interval has everything again.
    let _ = collector.post(Signal::Metrics, &request(&page, resource, Period { began, now })).await;
}

/// What counters and histograms count, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Period {
    began: u64,
    now: u64,
}

fn request(page: &Page, resource: &Resource, period: Period) -> ExportMetricsServiceRequest {
    let metrics = page.families.iter().filter(|family| !family.samples.is_empty());
    let scope = InstrumentationScope {
        name: "duly".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = ScopeMetrics {
        scope: Some(scope),
        metrics: metrics.map(|family| metric(family, period)).collect(),
        ..ScopeMetrics::default()
    };
    let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
    let resource_metrics = ResourceMetrics {
        resource: Some(Attributes { attributes, ..Attributes::default() }),
        scope_metrics: vec![scope_metrics],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }
}

fn metric(family: &Family, period: Period) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let numbers = || family.samples.iter().filter_map(|sample| number(sample, period)).collect();
    let data = match family.kind {
        Kind::Counter => {
            Data::Sum(Sum { data_points: numbers(), aggregation_temporality, is_monotonic: true })
        }
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        Kind::Histogram => {
            let data_points = family.samples.iter().filter_map(|sample| histogram(sample, period)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        }
    };
    let unit = match family.name.trim_end_matches("_total") {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    };
    let (name, description, unit) = (convention(family.name).into(), family.help.into(), unit.into());
    Metric { name, description, unit, data: Some(data), ..Metric::default() }
}

fn convention(name: &'static str) -> &'static str {
    CONVENTIONS.into_iter().find(|(prometheus, _)| *prometheus == name).map_or(name, |(_, name)| name)
}

fn number(sample: &Sample, period: Period) -> Option<NumberDataPoint> {
    let value = match sample.value {
        Value::Count(count) => number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
        Value::Number(number) => number_data_point::Value::AsDouble(number),
        Value::Spans(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: period.began,
        time_unix_nano: period.now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(sample: &Sample, period: Period) -> Option<HistogramDataPoint> {
    let Value::Spans(spans) = &sample.value else { return None };
    let (explicit_bounds, bucket_counts) = counts(spans);
    Some(HistogramDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: period.began,
        time_unix_nano: period.now,
        count: spans.count(),
        sum: Some(spans.sum().as_secs_f64()),
        bucket_counts,
        explicit_bounds,
        ..HistogramDataPoint::default()
    })
}

/// The bounds, and the spans between each two of them: not those below, as Prometheus counts them.
fn counts(spans: &HistogramSnapshot) -> (Vec<f64>, Vec<u64>) {
    let (bounds, below): (Vec<_>, Vec<_>) = buckets(spans).unzip();
    let ends = below.iter().copied().chain([spans.count()]);
    let begins = [0].into_iter().chain(below.iter().copied());
    (bounds, ends.zip(begins).map(|(end, begin)| end.saturating_sub(begin)).collect())
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&'static str, String)| {
        let value = any_value::Value::StringValue(value.clone());
        KeyValue {
            key: convention(name).into(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    };
    sample.labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_span_once() {
        let histogram = duly::Histogram::default();
        for us in [10, 100, 100, 5_000_000_000] {
            histogram.record(us);
        }
        let (bounds, counts) = counts(&histogram.snapshot());
        assert_eq!((bounds.len() + 1, counts.iter().sum::<u64>()), (counts.len(), 4));
        assert_eq!((counts[0], counts[1], counts[counts.len() - 1]), (1, 2, 1), "{bounds:?}");
    }
}
