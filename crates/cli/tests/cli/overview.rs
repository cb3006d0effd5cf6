//! Verbs that look at the whole.

use duly_client::wire::{Forecast, LevelsAnswer, NodesAnswer, Page, QueuesAnswer, SinksAnswer, Stats};

use super::Server;

#[test]
fn every_look_has_a_table_and_the_shape_of_the_wire() {
    let server = Server::start();
    server.ok(&["send", "order", "x", "--in", "30m"]);
    let queues: QueuesAnswer = server.json(&["queues"]);
    assert_eq!((queues.queues[0].topic.as_str(), queues.queues[0].pending), ("order", 1));
    let stats: Stats = server.json(&["stats"]);
    assert!(stats.totals.accepted == 1 && stats.totals.balanced);
    let forecast: Forecast = server.json(&["forecast", "--buckets", "12"]);
    assert_eq!(forecast.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1);
    let levels: LevelsAnswer = server.json(&["levels"]);
    assert!(levels.levels.iter().any(|level| level.name == "P0"));
    let nodes: NodesAnswer = server.json(&["nodes"]);
    assert!(nodes.nodes[0].this);
    server.json::<SinksAnswer>(&["sinks"]);
    server.json::<SinksAnswer>(&["sinks", "ls"]);

    for (verb, shows) in [
        ("queues", "order"),
        ("stats", "ledger balanced"),
        ("forecast", "FROM"),
        ("levels", "P0     5m"),
        ("nodes", "(this)"),
        ("sinks", "NAME"),
    ] {
        let table = server.ok(&[verb]);
        assert!(table.contains(shows), "{verb}: {table}");
    }
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let server = Server::start();
    server.ok(&["send", "order", "x", "--id", "a"]);
    assert_eq!(server.ok(&["pause", "order"]), "order paused\n");
    assert!(server.json::<QueuesAnswer>(&["queues"]).queues[0].paused);
    assert_eq!(server.ok(&["receive", "order"]), "");
    let resumed: serde_json::Value = server.json(&["resume", "order"]);
    assert_eq!(resumed, serde_json::json!({ "topic": "order", "paused": false }));
    assert!(server.ok(&["receive", "order", "--wait", "10s"]).starts_with("a  "));
}

#[test]
fn a_long_list_is_read_to_its_end_or_to_the_limit() {
    let server = Server::start();
    let lines: String =
        (0..1_200).map(|i| format!("{{\"topic\":\"t\",\"id\":\"m-{i}\",\"delay\":\"1h\"}}\n")).collect();
    assert_eq!(server.run_with(&["import", "-"], lines.as_bytes()).code, 0);
    let all: Page = server.json(&["ls", "--all"]);
    assert_eq!((all.messages.len(), all.cursor), (1_200, None));
    let some: Page = server.json(&["ls", "-n", "700"]);
    assert_eq!(some.messages.len(), 700);
    let rest: Page = server.json(&["ls", "--all", "--cursor", &some.cursor.unwrap()]);
    assert_eq!(rest.messages.len(), 500);
    assert!(server.run(&["ls"]).words.contains("--cursor"));
}

#[test]
fn only_levels_that_the_limit_of_delays_allows_are_offered() {
    let server = Server::with(|config| {
        config.limits.delay_max = duly::minutes(10);
        config.levels = duly::Levels::default().fallback("other");
    });
    let levels: LevelsAnswer = server.json(&["levels"]);
    let names: Vec<_> = levels.levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!((names, levels.default), (vec!["P0", "P1"], None));
    for name in ["P0", "P1"] {
        server.ok(&["send", "order", "x", "--level", name]);
    }
}
