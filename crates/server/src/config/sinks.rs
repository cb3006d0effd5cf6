//! `[sinks.X]`: how each is served, and what it is.

use std::time::Duration;

use duly::{Rate, RetryPolicy, SinkName, SinkOptions, millis};
use duly_sinks::SinkConfig;
use serde_json::Value as Json;

use super::{
    SinkSetup,
    resolve::{Sinks, retry},
    section::Section,
    target,
    units::show_span,
    written::{Node, Value},
};

/// What all lanes together may hold claimed.
const IN_FLIGHT_MAX: usize = 100_000;

pub(super) fn all(section: &mut Section<'_>, lease: Duration, general: &RetryPolicy) -> Sinks {
    let sinks = section.named_tables(|name, section| {
        let origin = section.origin.clone();
        let name = checked_name(name).map_err(|detail| section.fault("", &origin, detail)).ok();
        let options = options(section, lease, general);
        Some((name?, SinkSetup { options, config: config(section)? }))
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

fn options(section: &mut Section<'_>, lease: Duration, general: &RetryPolicy) -> SinkOptions {
    let default = SinkOptions::default();
    let (timeout_written, timeout) = (section.has("timeout"), usual_timeout(default.timeout, lease));
    let options = SinkOptions {
        in_flight: section.number("in_flight", default.in_flight, 1..=IN_FLIGHT_MAX),
        concurrency: section.number("concurrency", default.concurrency, 1..=4_096),
        batch: section.number("batch", default.batch, 1..=10_000),
        rate: rate(section),
        timeout: section.span("timeout", timeout, millis(1)..=duly::hours(12)),
        retry: own_retry(section, general),
    };
    if timeout_written
        && options.timeout >= lease
        && !section.reading.is_faulty("store.lease")
        && !section.reading.is_faulty(&section.at("timeout"))
    {
        let origin = section.origin_of("timeout");
        let (timeout, lease) = (show_span(options.timeout), show_span(lease));
        let detail = format!(
            "it is {timeout}, and must be shorter than store.lease, {lease}: a call that outlives its claim would be \
             sent again by another"
        );
        section.fault("timeout", &origin, detail);
    }
    options
}

/// A short lease shortens the timeout of sinks that name none.
fn usual_timeout(default: Duration, lease: Duration) -> Duration {
    if default < lease { default } else { lease.mul_f64(0.8) }
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

/// What the sink is: the keys that are left are its own.
fn config(section: &mut Section<'_>) -> Option<SinkConfig> {
    let origin = section.origin.clone();
    let table = section.rest();
    section.expect("kind");
    for (key, node) in &table {
        target::note(section, key, node);
    }
    let (config, faults) = target::read(&table);
    for (key, detail) in faults {
        let first = key.split(['.', '[']).next().unwrap_or_default();
        let origin = table.get(first).map_or(&origin, |node| &node.origin).clone();
        section.fault(&key, &origin, detail);
    }
    config
}
