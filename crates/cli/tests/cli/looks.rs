//! Help, manual, completions and colours.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use super::{Server, duly, run};

const VERBS: [&str; 29] = [
    "serve",
    "demo",
    "send",
    "get",
    "ls",
    "cancel",
    "reschedule",
    "fire",
    "receive",
    "ack",
    "nack",
    "extend",
    "dead",
    "queues",
    "sinks",
    "pause",
    "resume",
    "nodes",
    "levels",
    "stats",
    "health",
    "forecast",
    "tail",
    "import",
    "bench",
    "config",
    "token",
    "doctor",
    "backup",
];

fn out(args: &[&str]) -> String {
    let run = run(duly().args(args), b"");
    assert_eq!(run.code, 0, "{args:?}: {run:?}");
    run.out
}

#[test]
fn every_verb_explains_itself() {
    let overview = out(&["--help"]);
    for verb in VERBS.iter().chain(&["completions", "man"]) {
        assert!(overview.contains(&format!("\n  {verb} ")), "{verb} is not in the overview");
        let help = out(&[verb, "--help"]);
        assert!(help.contains("Usage: duly"), "{verb}: {help}");
        let about = help.lines().next().unwrap();
        assert!(about.len() > 10 && !about.ends_with('.'), "{verb}: {about}");
    }
    assert_eq!(run(&mut duly(), b"").code, 2, "no verb at all is a question");
    assert_eq!(out(&["--version"]).trim(), concat!("duly ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_reference_of_the_command_line_is_up_to_date() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let written = fs::read_to_string(page).unwrap();
    let made = out(&["man", "--markdown"]);
    assert!(written == made, "write it anew: cargo run -- man --markdown > docs/reference/cli.md");
    for verb in VERBS {
        assert!(made.contains(&format!("\n## `duly {verb}`\n")), "{verb} is not in it");
    }
    for option in ["--url URL", "--max-lateness DELAY", "--dry-run", "--keep-going", "DULY_TOKEN_FILE"] {
        assert!(made.contains(option), "{option} is not in it");
    }
}

#[test]
fn completions_and_manual_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(out(&["completions", shell]).contains("reschedule"), "{shell}");
    }
    assert!(out(&["man"]).starts_with(".ie"));
    let folder = tempfile::tempdir().unwrap();
    out(&["man", "--dir", folder.path().to_str().unwrap()]);
    for page in ["duly.1", "duly-send.1", "duly-dead-replay.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
}

#[test]
fn a_pipe_gets_no_colours() {
    let server = Server::start();
    for command in [&mut server.command(), server.command().env("NO_COLOR", "1")] {
        let run = run(command.args(["get", "nobody"]), b"");
        assert!(!run.words.contains('\x1b'), "{run:?}");
    }
    assert!(!server.ok(&["stats"]).contains('\x1b'));
    assert!(!out(&["send", "--help"]).contains('\x1b'));
}

#[test]
fn quiet_leaves_only_data_and_errors() {
    let server = Server::start();
    let run = server.run(&["send", "order", "x", "--id", "a", "-q"]);
    assert_eq!((run.out.as_str(), run.words.as_str()), ("a\n", ""));
    assert!(!server.run(&["get", "nobody", "-q"]).words.is_empty());
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let server = Server::start();
    let lines: String =
        (0..5_000).map(|i| format!("{{\"topic\":\"t\",\"id\":\"m-{i}\",\"delay\":\"1h\"}}\n")).collect();
    assert_eq!(server.run_with(&["import", "-"], lines.as_bytes()).code, 0);
    let mut list = server.command();
    let mut child = list.args(["ls", "--all"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
}
