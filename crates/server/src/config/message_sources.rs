//! `[sources.X]`: queues of brokers that messages are taken from.

use std::collections::BTreeMap;

use duly::SinkName;
use duly_sinks::KINDS;

use super::{
    Secret, SourceSetup,
    resolve::{Sinks, plain_name},
    section::Section,
    suggest::did_you_mean,
    written::Node,
};

/// The brokers that can be a source.
const BROKERS: [&str; 1] = ["rabbitmq"];

pub(super) fn all(section: &mut Section<'_>, sinks: &Sinks) -> BTreeMap<String, SourceSetup> {
    let sources = section.named_tables(|name, section| {
        let origin = section.origin.clone();
        let name = plain_name("source", name).map_err(|detail| section.fault("", &origin, detail)).ok();
        Some((name?, source(section, sinks)?))
    });
    sources.into_iter().filter_map(|(_, source)| source).collect()
}

fn source(section: &mut Section<'_>, sinks: &Sinks) -> Option<SourceSetup> {
    let kind = needed(section, "kind", "say what the source is: kind = \"rabbitmq\"", kind);
    let url = section.optional(
        "url",
        |node: &Node| node.text().map(Secret::new),
        |url: &Secret| url.shown().into(),
    );
    let queue =
        needed(section, "queue", "name the queue that messages are taken from", |text| Ok(text.into()));
    let sink =
        needed(section, "sink", "name the sink that messages go to at their time", |text| sink(text, sinks));
    let usual = SourceSetup::TOPIC.to_owned();
    let topic = section.value("topic", usual, |node| topic(node.text()?), |topic| topic.as_str().into());
    let prefetch = section.number("prefetch", SourceSetup::PREFETCH, 1..=u16::MAX);
    let dead_letter_exchange = section.text("dead_letter_exchange");
    let ca = section.file("ca");
    let (client_cert, client_key) = (section.file("client_cert"), section.file("client_key"));
    let origin = section.origin.clone();
    if url.is_none() && !section.reading.is_faulty(&section.at("url")) {
        section.fault(
            "url",
            &origin,
            "it is missing: set it, such as amqp://user:password@127.0.0.1:5672/vhost",
        );
    }
    kind?;
    let setup = SourceSetup {
        url: url?,
        queue: queue?,
        sink: sink?,
        topic,
        prefetch,
        dead_letter_exchange,
        ca,
        client_cert,
        client_key,
    };
    for (key, detail) in setup.faults() {
        let origin = section.origin_of(key);
        section.fault(key, &origin, detail);
    }
    Some(setup)
}

/// Text that must be there.
fn needed<T>(
    section: &mut Section<'_>,
    key: &'static str,
    what: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let mut found = None;
    section.optional(
        key,
        |node: &Node| {
            found = Some(read(node.text()?)?);
            node.text().map(str::to_owned)
        },
        |text: &String| text.as_str().into(),
    );
    if found.is_none() && !section.reading.is_faulty(&section.at(key)) {
        let origin = section.origin.clone();
        section.fault(key, &origin, format!("it is missing: {what}"));
    }
    found
}

fn kind(word: &str) -> Result<(), String> {
    if BROKERS.contains(&word) && !cfg!(feature = "rabbitmq") {
        return Err(format!("this build has no {word} source: build with --features {word}"));
    }
    if BROKERS.contains(&word) {
        return Ok(());
    }
    if KINDS.contains(&word) {
        return Err(format!("{word} is a kind of sink; a source is {}", BROKERS.join(", ")));
    }
    Err(format!(
        "there is no source {word:?}{}; there is: {}",
        did_you_mean(word, BROKERS),
        BROKERS.join(", ")
    ))
}

fn sink(name: &str, sinks: &Sinks) -> Result<SinkName, String> {
    let parsed = SinkName::parse(name).map_err(|fault| fault.detail)?;
    if parsed.is_queue() || sinks.contains_key(&parsed) {
        return Ok(parsed);
    }
    let known = sinks.keys().map(SinkName::as_str).chain(["queue"]);
    Err(format!("there is no sink {name:?}{}", did_you_mean(name, known)))
}

fn topic(text: &str) -> Result<String, String> {
    let plain = text.replace("{routing_key}", "").replace("{exchange}", "");
    if text.is_empty() || plain.contains(['{', '}']) {
        return Err(
            "a topic, in which {routing_key} and {exchange} stand for what the message came with".into()
        );
    }
    Ok(text.into())
}
