//! `duly config`, `duly token` and `duly doctor`, as they are typed.

use std::{
    net::TcpListener,
    process::{Command, Output},
};

use duly_server::{auth::Role, config::Config};

use crate::Folder;

pub(crate) fn duly(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
    command.args(arguments).env_clear().current_dir(folder.0.path()).output().expect("duly runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

#[test]
fn the_printed_default_is_accepted_and_found_without_being_named() {
    let folder = Folder::new();
    let printed = duly(&folder, &["config", "default"]);
    assert!(printed.status.success());
    folder.write("duly.toml", &stdout(&printed));
    let checked = duly(&folder, &["config", "check", "-o", "json"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    let (checked, listen) = (json(&checked), "127.0.0.1:7380");
    assert_eq!(checked["file"], "duly.toml");
    let settings = checked["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["path"] == "listen").unwrap();
    assert_eq!((&found["value"], &found["from"]), (&listen.into(), &"file".into()));
    assert!(found["line"].is_u64());
}

#[test]
fn what_is_used_otherwise_than_written_is_shown_and_what_was_never_used_is_refused() {
    let folder = Folder::new();
    folder.write(
        "duly.toml",
        "[sweep]\nmax = \"1m\"\nidle_max = \"1m\"\n[sinks.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:9\"\nin_flight = 5000\nconcurrency = 2\nbatch = 10\n",
    );
    let checked = json(&duly(&folder, &["config", "check", "--effective", "-o", "json"]));
    let found = |path: &str| {
        let settings = checked["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["path"] == path).unwrap_or_else(|| panic!("{path}")).clone()
    };
    let (max, in_flight) = (found("sweep.max"), found("sinks.hook.in_flight"));
    assert_eq!((&max["value"], in_flight["value"].as_u64()), (&"1m".into(), Some(5000)));
    assert_ne!(max["effective"], max["value"], "the heartbeat bounds it: {max}");
    // Neither the calls at a time nor what each carries bounds what is claimed: see the scheduler's tests.
    assert!(in_flight.get("effective").is_none(), "it is used as written: {in_flight}");
    assert!(found("listen").get("effective").is_none(), "it is used as written");
    for (section, line) in [
        ("sweep", "batch = 5"),
        ("handlers", "batch = 5"),
        ("handlers", "concurrency = 3"),
        ("handlers", "timeout = \"1m\""),
    ] {
        folder.write("duly.toml", &format!("[{section}]\n{line}\n"));
        let refused = duly(&folder, &["config", "check"]);
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && words.contains("never had an effect"), "{words}");
    }
}

#[test]
fn a_made_token_is_let_in_by_the_lines_printed_with_it() {
    let folder = Folder::new();
    let arguments = ["token", "--name", "shop", "--role", "produce", "--role", "read", "--topic", "order*"];
    let printed = stdout(&duly(&folder, &arguments));
    let (token, lines) = printed.split_once("\n\n").unwrap();
    assert!(!lines.contains(token), "the configuration holds the hash only");
    let config = Config::load(&folder.sources(lines, &[])).unwrap_or_else(|problems| panic!("{problems}"));
    let caller = config.tokens.caller(token).unwrap();
    assert_eq!(
        (caller.name.as_str(), caller.roles.as_slice()),
        ("shop", [Role::Produce, Role::Read].as_slice())
    );
    assert_eq!(caller.topics, ["order*"]);

    let made = json(&duly(&folder, &["token", "--name", "a", "--role", "admin", "-o", "json"]));
    assert!(made["token"].as_str().unwrap().starts_with("duly_"));
    assert!(made["hash"].as_str().unwrap().starts_with("sha256:"));
    for wrong in [
        &["token", "--name", "a"][..],
        &["token", "--name", "a", "--role", "root"],
        &["token", "--role", "read"],
        &["token", "--name", "a", "--role", "produce", "--topic", "订单*"],
    ] {
        assert_eq!(duly(&folder, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_doctor_finds_a_healthy_machine_healthy() {
    let folder = Folder::new();
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    folder
        .write("duly.toml", &format!("listen = \"{listen}\"\ndata = \"data\"\n[limits]\nconnections = 10\n"));
    let report = duly(&folder, &["doctor", "-o", "json"]);
    assert_eq!(report.status.code(), Some(0), "{}", stdout(&report));
    let report = json(&report);
    assert_eq!(report["ok"], true);
    let checks: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|finding| &finding["check"]).collect();
    for check in [
        "configuration",
        "data folder",
        "durability",
        "disk space",
        "disk sync",
        "clock",
        "open files",
        "listen",
        "callers",
    ] {
        assert!(checks.iter().any(|found| *found == check), "{check}: {checks:?}");
    }
    assert!(!folder.0.path().join("data").exists(), "a look changes nothing");
}

#[test]
fn the_doctor_names_what_is_wrong_and_how_to_mend_it() {
    let folder = Folder::new();
    let (taken, closed) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (listen, target) = (taken.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    let text = format!(
        "listen = \"{listen}\"\ndata = \"data\"\n[sinks.gone]\nkind = \"webhook\"\nurl = \"http://{target}/\"\n\
         allow_private = true\nrequest_timeout = \"1s\"\n"
    );
    folder.write("duly.toml", &text);
    let report = duly(&folder, &["doctor", "-o", "json"]);
    assert_eq!(report.status.code(), Some(1), "{}", stdout(&report));
    let report = json(&report);
    for check in ["listen", "sink gone"] {
        let finding =
            report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check).unwrap();
        assert_eq!(finding["state"], "fail");
        assert!(!finding["remedy"].as_str().unwrap().is_empty());
    }
    let words = stdout(&duly(&folder, &["doctor"]));
    assert!(words.contains("fail  sink gone") && words.contains("→ "), "{words}");
}
