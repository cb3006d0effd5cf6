//! The default file and the reference are kept in step with what the reader knows.

use std::{collections::BTreeSet, fs};

use super::{
    DEFAULT_FILE, Flags, Sources, load,
    section::Reading,
    target,
    written::{Node, Table, Value, parse},
};

const REFERENCE: &str = include_str!("../../../../docs/reference/configuration.md");

/// The default file with everything that is commented out in it brought back.
fn uncommented() -> String {
    let line = |line: &'static str| {
        let Some(rest) = line.strip_prefix("# ") else { return line };
        let name = rest.split(" = ").next().unwrap_or_default();
        let is_setting = rest.contains(" = ") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_setting || rest.starts_with('[') { rest } else { line }
    };
    DEFAULT_FILE.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn read(text: &str) -> Reading {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duly.toml");
    fs::write(&file, text).unwrap();
    load::read(&Sources { file: Some(file), environment: Vec::new(), flags: Flags::default() }).1
}

/// Every setting that the reader asks for, and those of every kind of sink.
fn known() -> BTreeSet<String> {
    let rate = "[sinks.a]\nkind = \"webhook\"\nrate = { per_second = 1 }";
    let mut known = read(&uncommented()).known;
    known.extend(read(rate).known);
    for kind in target::kinds() {
        known.extend(target::keys(&kind).into_iter().map(|key| format!("sinks.*.{key}")));
    }
    known
}

/// Every path of a tree, with the names that users choose as the reader knows them.
fn paths(table: &Table, below: &str, found: &mut BTreeSet<String>) {
    for (name, node) in table {
        let chosen = matches!(below, "sinks." | "sources." | "alerts.topic.");
        let path = format!("{below}{}", if chosen { "*" } else { name });
        match &node.value {
            Value::Table(inner) => paths(inner, &format!("{path}."), found),
            Value::List(list) => {
                for Node { value, .. } in list {
                    if let Value::Table(inner) = value {
                        paths(inner, &format!("{path}[]."), found);
                    }
                }
            }
            _ => {}
        }
        found.insert(path);
    }
}

#[test]
fn every_setting_stands_in_the_default_file() {
    let mut there = BTreeSet::new();
    let Ok(table) = parse(&uncommented()) else { panic!("the default file is no TOML when uncommented") };
    paths(&table, "", &mut there);
    // A sink's rate stands there as a number; its other form is told beside it.
    let known: BTreeSet<_> = known().into_iter().filter(|path| !path.starts_with("sinks.*.rate.")).collect();
    assert!(known.len() > 70, "{known:?}");
    let missing: Vec<_> = known.difference(&there).collect();
    assert!(missing.is_empty(), "not in config/default.toml: {missing:?}");
    assert!(DEFAULT_FILE.contains("{ per_second = 100, burst = 10 }"));
}

#[test]
fn every_setting_stands_in_the_reference() {
    let shown = |path: &str| {
        let path = path
            .replace("sinks.*", "sinks.NAME")
            .replace("sources.*", "sources.NAME")
            .replace("topic.*", "topic.TOPIC");
        REFERENCE.contains(&format!("`{path}`")) || REFERENCE.contains(&format!("`[{path}]`"))
    };
    let missing: Vec<_> = known().into_iter().filter(|path| !shown(path)).collect();
    assert!(missing.is_empty(), "not in docs/reference/configuration.md: {missing:?}");
}

#[test]
fn the_examples_of_the_default_file_are_right_too() {
    let reported: BTreeSet<_> =
        read(&uncommented()).problems.into_iter().map(|problem| problem.path).collect();
    // Settings of another store than the one named, files that are not there, and a token given in all three ways at once.
    let expected = [
        "auth.tokens[0].token",
        "auth.tokens[0].token_file",
        "sinks.nats.client_cert",
        "sinks.nats.client_key",
        "sinks.nats.creds_file",
        "sinks.orders.ca",
        "sinks.orders.client_cert",
        "sinks.rabbit.client_cert",
        "sinks.rabbit.client_key",
        "sources.rabbit.ca",
        "sources.rabbit.client_cert",
        "sources.rabbit.client_key",
        "store.allow_volatile",
        "store.connections",
        "store.horizon",
        "store.index_max",
        "store.mysql",
        "store.postgres",
        "store.redis",
        "store.shards",
        "store.wait_replicas",
        "telemetry.otlp.ca",
        "tls.cert",
    ];
    assert_eq!(reported, expected.map(str::to_owned).into());
}
