//! How long requests take, under the names of OpenTelemetry's semantic conventions.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly::Histogram;
use http::{Method, StatusCode};

use super::page::Page;

/// Series with labels of their own. A client can call every route by every method.
const SERIES_MAX: usize = 500;
/// The method of a request by a method that HTTP does not define.
const OTHER: &str = "_OTHER";

/// The template of the route (empty if none fits), the method and the status.
type Labels = (Arc<str>, &'static str, u16);

/// Measured requests.
#[derive(Default)]
pub(super) struct RequestMetrics(Mutex<HashMap<Labels, Arc<Histogram>>>);

impl RequestMetrics {
    pub(super) fn record(&self, route: &Arc<str>, method: &Method, status: StatusCode, took: Duration) {
        let labels = (route.clone(), name(method), status.as_u16());
        self.histogram(labels).record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn histogram(&self, labels: Labels) -> Arc<Histogram> {
        let mut series = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = series.len() >= SERIES_MAX && !series.contains_key(&labels);
        let labels = if is_full { (Arc::default(), OTHER, labels.2) } else { labels };
        series.entry(labels).or_default().clone()
    }

    pub(super) fn write(&self, page: &mut Page) {
        let help = "How long a request took until the head of its answer";
        let family = page.histogram("http_server_request_duration_seconds", help);
        let series = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((route, method, status), spans) in series.into_iter().collect::<BTreeMap<_, _>>() {
            let labels = [
                ("http_request_method", method),
                ("http_route", &*route),
                ("http_response_status_code", &status.to_string()),
            ];
            family.spans(&labels, &spans.snapshot());
        }
    }
}

fn name(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "CONNECT", "TRACE"].into_iter();
    known.clone().find(|known| *known == method.as_str()).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_routes_are_called_the_series_are_bounded() {
        let requests = RequestMetrics::default();
        let record = |route: &str, method: &str| {
            let method = method.parse().unwrap();
            requests.record(&route.into(), &method, StatusCode::OK, Duration::from_millis(2));
        };
        (0..2_000).for_each(|number| record(&format!("/v1/{number}"), "GET"));
        record("/v1/0", "GET");
        record("/v1/0", "BREW");
        let mut page = Page::default();
        requests.write(&mut page);
        let text = crate::telemetry::text::text(&page);
        let count = |labels: &str| {
            let line = format!("http_server_request_duration_seconds_count{{{labels}}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok())
        };
        let status = "http_response_status_code=\"200\"";
        assert_eq!(count(&format!("http_request_method=\"GET\",http_route=\"/v1/0\",{status}")), Some(2));
        assert_eq!(count(&format!("http_request_method=\"_OTHER\",{status}")), Some(1_501));
        assert_eq!(page.families[0].samples.len(), SERIES_MAX + 1);
    }
}
