//! `duly bench`, and what its ledger proves.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use super::{Server, duly, run, serve::Process};

struct Ledger {
    sent: BTreeSet<String>,
    accepted: BTreeSet<String>,
    received: BTreeSet<String>,
}

fn ledger(file: &Path) -> Ledger {
    let text = fs::read_to_string(file).unwrap();
    let ids = |word: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect()
    };
    for line in text.lines().filter_map(|line| line.strip_prefix("received ")) {
        let [_, due, at] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(at.parse::<u64>().unwrap() >= due.parse::<u64>().unwrap(), "early: {line}");
    }
    Ledger { sent: ids("sent "), accepted: ids("accepted "), received: ids("received ") }
}

#[test]
fn what_is_sent_comes_once_and_is_measured() {
    let server = Server::start();
    for batch in ["1", "50"] {
        let file = server.folder.path().join(format!("ledger-{batch}"));
        let args =
            ["bench", "-d", "500ms", "-c", "4", "--delay", "50ms..100ms", "--topic", batch, "--batch", batch];
        let report: Value = server.json(&[&args[..], &["--ledger", file.to_str().unwrap()]].concat());
        let ledger = ledger(&file);
        assert!(!ledger.accepted.is_empty());
        assert_eq!(ledger.accepted, ledger.sent, "nothing was refused: {report}");
        assert_eq!(ledger.received, ledger.accepted);
        assert_eq!(report["accepted"], ledger.accepted.len());
        assert_eq!((&report["delivered"], &report["errors"]), (&report["accepted"], &0.into()));
        assert_eq!(report["lateness"]["count"], report["accepted"]);
        assert!(report["accept_latency"]["p99_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_rate_is_not_exceeded() {
    let server = Server::start();
    let report: Value =
        server.json(&["bench", "-d", "1s", "-c", "4", "--rate", "100", "--delay", "1h", "--no-receive"]);
    let accepted = report["accepted"].as_u64().unwrap();
    // On a busy disk it may be less.
    assert!((1..=104).contains(&accepted), "{report}");
    assert_eq!((&report["delivered"], &report["lateness"]), (&Value::Null, &Value::Null));
    assert!(server.ok(&["bench", "-d", "100ms", "-c", "1", "--delay", "10ms"]).contains("accepted"));
}

#[test]
fn bodies_that_are_too_large_are_refused_and_not_waited_for() {
    let server = Server::start();
    let run = server.run(&["bench", "-d", "200ms", "-c", "1", "--body", "1100000", "--no-receive"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(format!("{}{}", run.out, run.words).contains("body_too_large"), "{run:?}");
}

#[test]
fn refusals_are_counted_by_their_code() {
    let server = Server::start();
    let run = server.run(&["bench", "-d", "100ms", "-c", "1", "--sink", "nope", "-o", "json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert!(report["refused"]["unknown_sink"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_refusal_is_1_and_says_why_whether_it_sends_or_receives() {
    let folder = tempfile::tempdir().unwrap();
    let token = |args: &[&str]| {
        let made = run(duly().arg("token").args(args), b"").out;
        let (token, config) = made.split_once("\n\n").unwrap();
        (token.to_owned(), config.to_owned())
    };
    let (send_only, config) = token(&["--name", "a", "--role", "produce"]);
    fs::write(folder.path().join("duly.toml"), config).unwrap();
    let server = Process::start(folder.path(), "127.0.0.1:0");
    let bench = |args: &[&str]| {
        let mut command = duly();
        command.args(["bench", "-d", "1s", "-c", "1", "--url", &server.url]).args(args);
        run(&mut command, b"")
    };
    for keep_going in [&[][..], &["--keep-going"]] {
        let nobody = bench(keep_going);
        assert_eq!(nobody.code, 1, "a server answers: {nobody:?}");
        assert!(nobody.words.contains("[unauthorized]") && nobody.words.contains("--token"), "{nobody:?}");
        let forbidden = bench(&[&["--token", &send_only], keep_going].concat());
        assert_eq!(forbidden.code, 1, "{forbidden:?}");
        assert!(forbidden.words.contains("[forbidden]"), "{forbidden:?}");
    }
    let sending = bench(&["--no-receive"]);
    assert_eq!(sending.code, 1, "{sending:?}");
    assert!(
        sending.out.contains("refused: unauthorized") && sending.words.contains("unauthorized"),
        "{sending:?}"
    );
}
