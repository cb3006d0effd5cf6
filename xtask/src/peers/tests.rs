use serde_json::json;

use super::*;

fn options(words: &[&str]) -> Options {
    Options::try_parse_from(words).unwrap()
}

#[test]
fn a_burst_is_due_when_the_system_has_accepted_it() {
    let words = Phase::Burst.arguments(&options(&[]), Some(10_000.0));
    assert_eq!(words, ["--limit", "30", "--count", "20000", "--lead", "6000"]);
    let slow = Phase::Burst.arguments(&options(&["--large"]), Some(300.0));
    assert_eq!(
        slow,
        ["--limit", "30", "--count", "9000", "--lead", "48000"],
        "as much as it accepts in half a minute"
    );
}

#[test]
fn systems_and_phases_are_asked_for_by_name() {
    let asked = options(&["--systems", "bullmq,duly", "--phases", "crash,batch"]);
    assert_eq!(asked.systems().map(|system| system.name).collect::<Vec<_>>(), ["duly", "bullmq"]);
    assert_eq!(asked.phases(), [Phase::Batch, Phase::Crash]);
    assert_eq!(options(&[]).systems().count(), system::ALL.len());
    assert!(Options::try_parse_from(["--systems", "kafka"]).is_err());
}

#[test]
fn a_system_that_is_not_installed_says_how_to_install_it() {
    let rabbitmq = options(&["--systems", "rabbitmq"]).systems().next().unwrap();
    assert_eq!(rabbitmq.missing(|_| true), None);
    assert_eq!(rabbitmq.missing(|program| program != "epmd"), Some("apt-get install rabbitmq-server"));
    assert_eq!(rabbitmq.missing(|program| program != "go"), Some("install Go 1.25 or newer"));
}

#[test]
fn the_table_shows_what_came_early_and_what_is_missing() {
    let system = &system::ALL[0];
    let figures = |phase, values| Figures { system, phase, values };
    let all = [
        figures(Phase::Batch, json!({"per_s": 123_456.7, "driver_cpu_s": 1.0, "server_cpu_s": 3.0})),
        figures(
            Phase::Late,
            json!({"p50_ms": -400.2, "p99_ms": 3.12, "early": 50, "received": 99, "sent": 100, "sent_per_s": 1999.6}),
        ),
        figures(
            Phase::Burst,
            json!({"burst_s": 0.514, "accepted": 20_000, "received": 20_000, "spare_s": -1.0}),
        ),
        figures(Phase::Crash, json!({"missing": 0, "accepted": 5_123})),
    ];
    let table = table::render(&all);
    for cell in [
        "| 123,457 ",
        "| -400 / 3.1, 50 % early, 1 missing at 2,000/s |",
        "| 0.51 of 20,000, the last batch after the instant |",
        "| 0 of 5,123 ",
        "| 25 ",
    ] {
        assert!(table.contains(cell), "{cell}\n{table}");
    }
    let lines = table::json(&all);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((first["system"].as_str(), first["phase"].as_str()), (Some("duly"), Some("batch")));
}
