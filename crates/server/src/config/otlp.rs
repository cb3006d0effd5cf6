//! `[telemetry.otlp]`: where traces and metrics are exported to.

use std::{collections::BTreeMap, time::Duration};

use duly::{hours, millis, minutes, seconds};
use serde_json::Value as Json;

use super::{
    OtlpSetup, Secret,
    secret::MASK,
    section::Section,
    written::{Node, Table, Value},
};

/// Whether this build has the export.
pub(super) const IS_BUILT: bool = cfg!(feature = "otel");

pub(super) fn otlp(section: &mut Section<'_>) -> Option<OtlpSetup> {
    let show = |url: &Option<Secret>| url.as_ref().map_or(Json::Null, |url| url.shown().into());
    let read = |node: &Node| match IS_BUILT {
        true => node.text().map(|url| Some(Secret::new(url))),
        false => Err("this build exports nothing; build it with the feature otel".into()),
    };
    let endpoint = section.value("endpoint", None, read, show);
    let headers = section.table("headers", |section| {
        texts(section, |text| Secret::new(text), |_| MASK.into()).into_iter().collect::<BTreeMap<_, _>>()
    });
    let setup = OtlpSetup {
        endpoint: endpoint.clone().unwrap_or_else(|| Secret::new("")),
        headers,
        ca: section.file("ca"),
        timeout: section.span("timeout", seconds(10), millis(100)..=minutes(5)),
        interval: section.span("interval", minutes(1), seconds(1)..=hours(1)),
        sample_ratio: section.value("sample_ratio", 1.0, Node::fraction, |ratio| (*ratio).into()),
        resource: section.table("resource", |section| {
            texts(section, str::to_owned, |text| text.as_str().into()).into_iter().collect()
        }),
    };
    endpoint?;
    for fault in setup.webhook().check() {
        let key = if fault.path == "url" { "endpoint".to_owned() } else { fault.path };
        let origin = section.origin_of(&key);
        if !section.reading.is_faulty(&section.at(&key)) {
            section.fault(&key, &origin, fault.detail);
        }
    }
    Some(setup)
}

/// Names that users choose, each with a text. `service.name = "a"` is a table for TOML, and one name here.
fn texts<T>(section: &mut Section<'_>, read: fn(&str) -> T, show: fn(&T) -> Json) -> Vec<(String, T)> {
    let mut found = Vec::new();
    for (name, node) in flat(section.rest(), "") {
        let path = if name.contains('.') { format!("{name:?}") } else { name.clone() };
        match node.text() {
            Ok(text) => {
                let value = read(text);
                section.note(&path, &node.origin, show(&value));
                found.push((name, value));
            }
            Err(detail) => section.fault(&path, &node.origin, detail),
        }
    }
    found
}

/// `service.name`, where a table `service` has a `name`.
pub(super) fn flat(table: Table, before: &str) -> Vec<(String, Node)> {
    let named = table.into_iter().map(|(name, node)| (format!("{before}{name}"), node));
    named
        .flat_map(|(name, node)| match node.value {
            Value::Table(inner) => flat(inner, &format!("{name}.")),
            _ => vec![(name, node)],
        })
        .collect()
}

impl OtlpSetup {
    /// A collector takes posts as any webhook does.
    pub(crate) fn webhook(&self) -> duly_sinks::WebhookConfig {
        let mut headers = self.headers.clone();
        headers.insert("content-type".into(), Secret::new("application/x-protobuf"));
        duly_sinks::WebhookConfig {
            url: Some(self.endpoint.clone()),
            headers,
            // The configuration is trusted: any address is allowed.
            allow_private: duly_sinks::webhook::AllowPrivate::All,
            request_timeout: Some(duly_sinks::Span(self.timeout)),
            ca: self.ca.clone(),
            ..duly_sinks::WebhookConfig::default()
        }
    }

    /// As usual, for this collector.
    pub fn to(endpoint: &str) -> Self {
        Self {
            endpoint: Secret::new(endpoint),
            headers: BTreeMap::new(),
            ca: None,
            timeout: seconds(10),
            interval: Duration::from_secs(60),
            sample_ratio: 1.0,
            resource: BTreeMap::new(),
        }
    }
}
