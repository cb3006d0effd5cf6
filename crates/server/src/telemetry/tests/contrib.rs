//! The dashboard and the rules that we hand out speak of what is exported, and of all of it.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    process::{Command, Stdio},
};

use super::Bench;

const RULES: &str = include_str!("../../../../../contrib/prometheus/duly-alerts.yml");
const DASHBOARD: &str = include_str!("../../../../../contrib/grafana/duly.json");

/// Every word that is the name of a metric. What a histogram adds to its name is taken off.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &str| {
        ["_bucket", "_sum", "_count"].iter().find_map(|s| word.strip_suffix(s)).map(str::to_owned)
    };
    words
        .filter(|word| word.starts_with("duly_") || word.starts_with("http_server_"))
        .map(|word| metric(word).unwrap_or_else(|| word.to_owned()))
        .collect()
}

/// The queries of the dashboard.
fn queries(dashboard: &serde_json::Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_rules_is_exported_and_none_is_forgotten() {
    let bench = Bench::start().await;
    let exported: BTreeSet<String> = bench.page().await.kinds.into_keys().collect();
    let used: BTreeSet<String> = named(RULES).union(&named(DASHBOARD)).cloned().collect();
    let unknown: Vec<_> = used.difference(&exported).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    let unused: Vec<_> = exported.difference(&used).collect();
    assert!(unused.is_empty(), "neither on the dashboard nor in a rule: {unused:?}");
}

#[test]
fn the_dashboard_shows_only_the_nodes_chosen() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let queries = queries(&dashboard);
    assert!(queries.len() > 20);
    for query in queries {
        let metrics = query.matches("duly_").count() + query.matches("http_server_").count();
        assert_eq!(query.matches("instance=~\"$instance\"").count(), metrics, "{query}");
        assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
    }
}

/// What every node of a shared store reports alike.
const OF_THE_STORE: [&str; 6] = [
    "duly_pending{",
    "duly_ready{",
    "duly_in_flight{",
    "duly_dead_letters{",
    "duly_store_accepted{",
    "duly_store_messages{",
];

#[test]
fn the_dashboard_counts_a_store_once_however_many_nodes_it_has() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let queries = queries(&dashboard);
    for metric in OF_THE_STORE {
        let of_it: Vec<_> = queries.iter().filter(|query| query.contains(metric)).collect();
        assert!(!of_it.is_empty(), "{metric}");
        for query in of_it {
            // Over the lanes of each node is no sum over nodes.
            let over_nodes = query.replace("sum by (instance)", "");
            assert!(!over_nodes.contains("sum") && over_nodes.contains("max"), "{query}");
        }
    }
}

#[test]
fn every_metric_is_written_down_in_the_guide() {
    let guide = include_str!("../../../../../docs/guide/monitoring.md");
    let used: BTreeSet<String> = named(RULES).union(&named(DASHBOARD)).cloned().collect();
    let reported = named(guide);
    let missing: Vec<_> = used.difference(&reported).collect();
    assert!(missing.is_empty(), "not in the guide: {missing:?}");
}

/// Runs `promtool check` with this input, unless it is not installed; it must find nothing.
fn promtool(check: &[&str], input: &str) {
    if !testkit::servers::installed("promtool", &["promtool"]) {
        return;
    }
    let mut promtool = Command::new("promtool");
    promtool.arg("check").args(check).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = promtool.spawn().unwrap();
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    let words = [&ended.stdout[..], &ended.stderr].map(String::from_utf8_lossy).concat();
    assert!(ended.status.success(), "promtool check {check:?}: {words}");
}

#[test]
fn prometheus_understands_every_rule_and_every_query_of_the_dashboard() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/prometheus/duly-alerts.yml");
    promtool(&["rules", rules], "");
    // What Grafana fills in; a query is a rule that records.
    let dashboard = DASHBOARD.replace("$instance", ".*").replace("$__rate_interval", "1m");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let rules: Vec<_> = queries(&dashboard)
        .into_iter()
        .enumerate()
        .map(|(number, query)| serde_json::json!({"record": format!("query_{number}"), "expr": query}))
        .collect();
    assert!(rules.len() > 20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.yml");
    // JSON is YAML, too.
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(&file, groups.to_string()).unwrap();
    promtool(&["rules", file.to_str().unwrap()], "");
}

#[tokio::test]
async fn prometheus_finds_nothing_odd_about_the_page() {
    let bench = Bench::start().await;
    promtool(&["metrics"], &bench.telemetry.render().await);
}
