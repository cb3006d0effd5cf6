//! The keys that belong to one kind of sink: read by that kind, through serde.
//!
//! Serde stops at the first fault. So a key that it complains of is taken out and the rest is tried again, until all
//! have been told.

use duly_sinks::{KINDS, SinkConfig};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    secret::{MASK, is_secret_name, mask_url, only_host, without},
    section::Section,
    suggest::did_you_mean,
    written::{Node, Table, Value, parse_value, to_toml},
};
use crate::wire::plain;

/// A key, and what is wrong with it.
type Fault = (String, String);

/// Reads the keys of one sink. `general` are settings that every sink has: they may be what was meant.
pub(super) fn read(table: &Table, general: &[&str]) -> (Option<SinkConfig>, Vec<Fault>) {
    if let Err(detail) = kind(table) {
        return (None, vec![("kind".into(), detail)]);
    }
    let mut faults: Vec<Fault> = Vec::new();
    let mut left = to_toml(table);
    let config = loop {
        let message = match parse(&left) {
            Ok(config) => break config,
            Err(message) => message,
        };
        if let Some(key) = named_in(&message, "unknown field") {
            left.remove(&key);
            let known = backticked(&message);
            let suggestion =
                did_you_mean(&key, known.iter().skip(1).map(String::as_str).chain(general.iter().copied()));
            faults.push((key, format!("there is no such setting for this kind of sink{suggestion}")));
        } else if let Some(key) = named_in(&message, "missing field") {
            if !faults.iter().any(|(reported, _)| *reported == key) {
                faults.push((key, "it is missing: this kind of sink needs it".into()));
            }
            return (None, faults);
        } else if let Some(key) = culprit(&left, &message) {
            if loosened(table, &mut left, &key) {
                continue;
            }
            left.remove(&key);
            faults.push((key.clone(), words(&key, table.get(&key), &message)));
        } else {
            faults.push((String::new(), scrubbed(message, table)));
            return (None, faults);
        }
    };
    for fault in config.check() {
        // A key that was removed is reported already, and is not missing.
        let reported = faults.iter().any(|(key, _)| first(key) == first(&fault.path));
        if !reported {
            faults.push((fault.path, scrubbed(fault.detail, table)));
        }
    }
    (Some(config), faults)
}

/// The key of a path below the sink.
pub(super) fn first(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or_default()
}

fn parse(table: &toml::Table) -> Result<SinkConfig, String> {
    SinkConfig::deserialize(toml::Value::Table(table.clone())).map_err(|error| plain(error.message()))
}

fn kind(table: &Table) -> Result<(), String> {
    let Some(node) = table.get("kind") else {
        return Err("it is missing: say what the sink is, such as kind = \"webhook\"".into());
    };
    let word = node.text()?;
    let only = toml::Table::from_iter([("kind".to_owned(), toml::Value::String(word.into()))]);
    let Some(message) = parse(&only).err().filter(|message| message.starts_with("unknown variant")) else {
        return Ok(());
    };
    Err(no_such_kind(word, &backticked(&message)[1..]))
}

/// `there` are the kinds of this build.
fn no_such_kind(word: &str, there: &[String]) -> String {
    if KINDS.contains(&word) {
        return format!("this build has no {word} sink: build with --features {word}");
    }
    let suggestion = did_you_mean(word, KINDS);
    format!("there is no kind of sink {word:?}{suggestion}; there are: {}", there.join(", "))
}

/// The key without which the complaint is another.
fn culprit(table: &toml::Table, message: &str) -> Option<String> {
    let other = |key: &&String| {
        let mut without = table.clone();
        without.remove(*key);
        parse(&without).err().as_deref() != Some(message)
    };
    table.keys().filter(|key| *key != "kind").find(other).cloned()
}

/// The environment knows only text: where that is not wanted it may stand for a number, a flag or a list.
fn loosened(table: &Table, left: &mut toml::Table, key: &str) -> bool {
    let Some(node) = table.get(key).filter(|node| node.is_bare()) else { return false };
    let Value::Text(text) = &node.value else { return false };
    let Some(value) = parse_value(text, &node.origin).map(|node| node.to_toml()) else { return false };
    left.insert(key.to_owned(), value.clone()) != Some(value)
}

fn words(key: &str, node: Option<&Node>, message: &str) -> String {
    let hidden = holds_secret(key) || node.is_some_and(|node| node.hidden);
    match message.split_once(", expected ") {
        Some((_, expected)) if hidden => format!("this cannot be used here: expected {expected}"),
        None if hidden => "this cannot be used here".into(),
        _ => node.map_or_else(
            || message.to_owned(),
            |node| {
                let one = Table::from_iter([(key.to_owned(), node.clone())]);
                scrubbed(message.to_owned(), &one)
            },
        ),
    }
}

/// Headers carry credentials under names of their own.
fn holds_secret(key: &str) -> bool {
    is_secret_name(key) || key == "headers"
}

/// Takes every secret of the table out of a message.
fn scrubbed(message: String, table: &Table) -> String {
    let (mut secrets, mut urls) = (Vec::new(), Vec::new());
    table.iter().for_each(|(key, node)| gather(key, node, false, &mut secrets, &mut urls));
    let message = without(&secrets, &message);
    urls.iter().fold(message, |message, url| message.replace(url, &shown_url(url)))
}

fn gather(key: &str, node: &Node, inside: bool, secrets: &mut Vec<String>, urls: &mut Vec<String>) {
    let hidden = inside || node.hidden || holds_secret(key);
    match &node.value {
        Value::Text(text) if hidden => secrets.push(text.clone()),
        Value::Text(text) if shown_url(text) != *text => urls.push(text.clone()),
        Value::List(list) => list.iter().for_each(|node| gather(key, node, hidden, secrets, urls)),
        Value::Table(table) => table.iter().for_each(|(key, node)| gather(key, node, hidden, secrets, urls)),
        _ => {}
    }
}

/// Of a web address only the host: its path may hold a token.
fn shown_url(text: &str) -> String {
    if text.starts_with("http://") || text.starts_with("https://") { only_host(text) } else { mask_url(text) }
}

/// Notes what is used; secrets masked.
pub(super) fn note(section: &mut Section<'_>, key: &str, node: &Node) {
    let hidden = node.hidden || holds_secret(key);
    section.note(key, &node.origin, shown(node, hidden));
}

fn shown(node: &Node, hidden: bool) -> Json {
    match &node.value {
        Value::Table(table) => table
            .iter()
            .map(|(key, node)| (key.clone(), shown(node, hidden || is_secret_name(key))))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ if hidden => MASK.into(),
        Value::Text(text) => shown_url(text).into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::Moment(moment) => moment.to_string().into(),
        Value::List(list) => list.iter().map(|node| shown(node, false)).collect(),
    }
}

fn named_in(message: &str, begin: &str) -> Option<String> {
    message.starts_with(begin).then(|| backticked(message).into_iter().next()).flatten()
}

/// The settings of one kind of sink, as serde knows them.
#[cfg(test)]
pub(super) fn keys(kind: &str) -> Vec<String> {
    let unknown = |key: &str| (key.to_owned(), toml::Value::Integer(0));
    let table = toml::Table::from_iter([("kind".to_owned(), toml::Value::String(kind.into())), unknown("?")]);
    backticked(&parse(&table).unwrap_err()).into_iter().skip(1).collect()
}

/// All kinds, as serde knows them.
#[cfg(test)]
pub(super) fn kinds() -> Vec<String> {
    let table = toml::Table::from_iter([("kind".to_owned(), toml::Value::String("?".into()))]);
    backticked(&parse(&table).unwrap_err()).into_iter().skip(1).collect()
}

fn backticked(message: &str) -> Vec<String> {
    message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_was_left_out_of_the_build_is_refused_with_its_feature() {
        let there = ["webhook".to_owned(), "nats".to_owned()];
        let words = no_such_kind("kafka", &there);
        assert_eq!(words, "this build has no kafka sink: build with --features kafka");
        let words = no_such_kind("kafak", &there);
        assert_eq!(
            words,
            "there is no kind of sink \"kafak\" (did you mean kafka?); there are: webhook, nats"
        );
    }
}
