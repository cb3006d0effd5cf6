//! `[sinks.X]`: how each is served, and what it is.

use std::time::Duration;

use duly::{Rate, RetryPolicy, SinkName, SinkOptions, TopicPatterns, millis, seconds};
use duly_core::schedule::LaneSettings;
use duly_sinks::{CloudEventsConfig, SinkConfig};
use serde_json::Value as Json;

use super::{
    Problem, SinkSetup, credentials,
    resolve::{Sinks, retry},
    section::Section,
    target,
    units::show_span,
    written::{Node, Value},
};

/// The limit of claims of a lane. A higher setting is refused, because the scheduler would lower it silently.
const IN_FLIGHT_MAX: usize = LaneSettings::IN_FLIGHT_MAX;
/// The most messages of one call: no lane holds more ready to be handed over.
const BATCH_MAX: usize = LaneSettings::BUFFERED_MAX;
/// The settings that every sink has, whatever its kind.
const GENERAL: [&str; 8] =
    ["in_flight", "concurrency", "batch", "rate", "timeout", "retry", "topics", "cloudevents"];

pub(super) fn all(section: &mut Section<'_>, lease: Duration, general: &RetryPolicy) -> Sinks {
    let sinks = section.named_tables(|name, section| {
        let origin = section.origin.clone();
        let name = checked_name(name).map_err(|detail| section.fault("", &origin, detail)).ok();
        let config = config(section);
        let options = options(section, &Target::of(config.as_ref()), lease, general);
        let cloudevents = cloudevents(section, config.as_ref());
        Some((name?, SinkSetup { options, config: config?, cloudevents }))
    });
    sinks.into_iter().filter_map(|(_, sink)| sink).collect()
}

fn checked_name(name: &str) -> Result<SinkName, String> {
    let parsed = SinkName::parse(name).map_err(|fault| fault.detail)?;
    if parsed.is_queue() {
        return Err("this name is the built-in queue's; choose another".into());
    }
    if name.contains('/') {
        return Err("a sink's name has no slash: the slash ends it in sink/topic".into());
    }
    Ok(parsed)
}

fn options(
    section: &mut Section<'_>,
    target: &Target,
    lease: Duration,
    general: &RetryPolicy,
) -> SinkOptions {
    let default = SinkOptions::default();
    let options = SinkOptions {
        in_flight: section.number("in_flight", default.in_flight, 1..=IN_FLIGHT_MAX),
        concurrency: section.number("concurrency", default.concurrency, 1..=4_096),
        batch: section.number("batch", default.batch.min(target.batch), 1..=BATCH_MAX),
        rate: rate(section),
        timeout: section.span("timeout", target.usual_timeout(lease), millis(1)..=duly::hours(12)),
        retry: own_retry(section, general),
        topics: topics(section),
    };
    if section.reading.is_faulty(&section.at("timeout")) {
        return options;
    }
    let (timeout, origin) = (options.timeout, section.origin_of("timeout"));
    if timeout >= lease && !section.reading.is_faulty("store.lease") {
        let detail = format!(
            "it is {}, and must be shorter than store.lease, {}: a call that outlives its claim would be sent again by \
             another",
            show_span(timeout),
            show_span(lease)
        );
        section.fault("timeout", &origin, detail);
    } else if let Some(call) = target.call.filter(|call| *call >= timeout)
        && !section.reading.is_faulty(&section.at("request_timeout"))
    {
        too_short_for_a_request(section, timeout, call, lease);
    }
    options
}

/// One request of a sink may take longer than a whole call: the setting is named that somebody wrote.
fn too_short_for_a_request(section: &mut Section<'_>, timeout: Duration, call: Duration, lease: Duration) {
    let (origin, shown) = (section.origin_of("timeout"), show_span(call));
    let lease_written = section.reading.written_at("store.lease");
    if section.is_written("timeout") {
        let detail = format!(
            "it is {}, and must be longer than one request of this sink may take, {shown}: make request_timeout shorter",
            show_span(timeout)
        );
        section.fault("timeout", &origin, detail);
    } else if let Some(origin) = lease_written.filter(|_| !section.is_written("request_timeout")) {
        let detail = format!(
            "it is {}, and leaves no room for a call of the sink {}, of which one request may take {shown}: make it longer, or \
             {} shorter",
            show_span(lease),
            section.path,
            section.at("request_timeout")
        );
        if !section.reading.is_faulty("store.lease") {
            section.reading.problems.push(Problem::new("store.lease", origin, detail));
        }
    } else {
        let key = if section.is_written("request_timeout") { "request_timeout" } else { "timeout" };
        let detail = format!(
            "one request may take {shown}, and a call {}, which store.lease, {}, bounds: make request_timeout shorter",
            show_span(timeout),
            show_span(lease)
        );
        let origin = section.origin_of(key);
        section.fault(key, &origin, detail);
    }
}

/// The description of a sink; nothing if its settings are faulty.
struct Target {
    batch: usize,
    call: Option<Duration>,
}

impl Target {
    fn of(config: Option<&SinkConfig>) -> Self {
        Self {
            batch: config.map_or(usize::MAX, SinkConfig::batch),
            call: config.map(SinkConfig::call_timeout),
        }
    }

    /// A second more than one request may take, if the lease leaves so much.
    fn usual_timeout(&self, lease: Duration) -> Duration {
        let usual = self.call.map_or(SinkOptions::default().timeout, |call| call + seconds(1));
        if usual < lease { usual } else { lease.mul_f64(0.9) }
    }
}

/// `topics = ["orders*"]`: all topics, unless it is written.
fn topics(section: &mut Section<'_>) -> TopicPatterns {
    let read = |node: &Node| {
        let patterns = credentials::topics_or_ids(node)?;
        TopicPatterns::new(patterns).map_err(|fault| fault.detail)
    };
    let shown = |topics: &TopicPatterns| topics.as_slice().to_vec().into();
    section.optional("topics", read, shown).unwrap_or_default()
}

/// The attributes of CloudEvents, if messages are to be some.
fn cloudevents(section: &mut Section<'_>, config: Option<&SinkConfig>) -> Option<CloudEventsConfig> {
    if !section.has("cloudevents") {
        section.expect("cloudevents");
        return None;
    }
    let attributes = section.table("cloudevents", |section| {
        let (source, kind) = (section.text("source"), section.text("type"));
        let origin = section.origin.clone();
        if source.is_none() && !section.reading.is_faulty(&section.at("source")) {
            section.fault("source", &origin, "it is missing: say who sends, such as /shop/orders");
        }
        Some(CloudEventsConfig { source: source?, kind })
    })?;
    for fault in config.map(|config| attributes.check(config)).unwrap_or_default() {
        let origin = section.origin_of(&fault.path);
        section.fault(&fault.path, &origin, fault.detail);
    }
    Some(attributes)
}

/// `rate = 100`, or `rate = { per_second = 100, burst = 20 }`.
fn rate(section: &mut Section<'_>) -> Option<Rate> {
    match section.peek("rate") {
        Some(Node { value: Value::Table(_), .. }) => section.table("rate", |section| {
            let per_second = section.number("per_second", 0u32, 1..=10_000_000);
            let origin = section.origin.clone();
            if per_second == 0 && !section.reading.is_faulty(&section.at("per_second")) {
                section.fault("per_second", &origin, "it is missing: say how many messages per second");
            }
            let burst = section.number("burst", usual_burst(per_second), 1..=10_000_000);
            Some(Rate { per_second, burst })
        }),
        _ => {
            let read = |node: &Node| {
                let per_second = node.number(&(1..=10_000_000))?;
                Ok(Some(Rate { per_second, burst: usual_burst(per_second) }))
            };
            section.value("rate", None, read, |rate| rate.map_or(Json::Null, |rate| rate.per_second.into()))
        }
    }
}

/// A tenth of a second's worth.
fn usual_burst(per_second: u32) -> u32 {
    (per_second / 10).max(1)
}

fn own_retry(section: &mut Section<'_>, general: &RetryPolicy) -> Option<RetryPolicy> {
    let written = section.has("retry");
    if !written {
        section.expect("retry");
        return None;
    }
    Some(section.table("retry", |section| retry(section, general.clone())))
}

/// The technology of the sink. The remaining keys are its own.
fn config(section: &mut Section<'_>) -> Option<SinkConfig> {
    let origin = section.origin.clone();
    section.expect("kind");
    let table = section.rest_but(&GENERAL);
    for (key, node) in &table {
        target::note(section, key, node);
    }
    let (config, faults) = target::read(&table, &GENERAL);
    for (key, detail) in faults {
        let origin = table.get(target::first(&key)).map_or(&origin, |node| &node.origin).clone();
        section.fault(&key, &origin, detail);
    }
    config
}
