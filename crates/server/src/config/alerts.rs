//! `[alerts]`, and `[alerts.topic.X]` where a topic differs.

use std::time::Duration;

use duly::{Topic, days, millis};
use serde_json::Value as Json;

use super::{
    AlertRules, Thresholds,
    secret::only_host,
    section::{Section, within},
    units::show_span,
    written::{Node, Value},
};

/// The value that switches an alert off.
const OFF: &str = "off";

pub(super) fn rules(section: &mut Section<'_>) -> AlertRules {
    let all = thresholds(section, &Thresholds::usual());
    let webhook = section.value(
        "webhook",
        None,
        |node| webhook(node.text()?).map(Some),
        |url: &Option<String>| url.as_deref().map_or(Json::Null, |url| only_host(url).into()),
    );
    let topics = section.table("topic", |section| {
        let topics = section.named_tables(|name, section| {
            if let Err(fault) = Topic::parse(name) {
                let origin = section.origin.clone();
                section.fault("", &origin, fault.detail);
            }
            // A topic inherits the thresholds that it does not set.
            thresholds(section, &all)
        });
        topics.into_iter().collect()
    });
    AlertRules { all, topics, webhook }
}

fn thresholds(section: &mut Section<'_>, default: &Thresholds) -> Thresholds {
    let span = |node: &Node| within(node.span()?, &(millis(1)..=days(366)), |span| show_span(*span));
    let show_span = |span: Duration| show_span(span).into();
    Thresholds {
        overdue: or_off(section, "overdue", default.overdue, span, show_span),
        queue_length: or_off(
            section,
            "queue_length",
            default.queue_length,
            |node| node.number(&(1..=u64::MAX)),
            Json::from,
        ),
        lateness_p99: or_off(section, "lateness_p99", default.lateness_p99, span, show_span),
        failure_rate: or_off(section, "failure_rate", default.failure_rate, Node::fraction, Json::from),
        dead_letters: or_off(
            section,
            "dead_letters",
            default.dead_letters,
            |node| node.number(&(0..=u64::MAX)),
            Json::from,
        ),
    }
}

fn or_off<T: Copy>(
    section: &mut Section<'_>,
    key: &'static str,
    default: Option<T>,
    read: impl FnOnce(&Node) -> Result<T, String>,
    show: impl FnOnce(T) -> Json,
) -> Option<T> {
    let read = |node: &Node| match &node.value {
        Value::Text(text) if text == OFF => Ok(None),
        _ => read(node).map(Some).map_err(|fault| format!("{fault}; or {OFF:?}")),
    };
    section.value(key, default, read, |value| value.map_or_else(|| OFF.into(), show))
}

fn webhook(text: &str) -> Result<String, String> {
    let wrong = "this is not a URL that alerts can be posted to; write https://host/path";
    let url = url::Url::parse(text).map_err(|_| wrong)?;
    let fits = matches!(url.scheme(), "http" | "https") && url.host().is_some();
    if fits { Ok(text.into()) } else { Err(wrong.into()) }
}
