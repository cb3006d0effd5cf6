//! `duly demo`: the first thing a newcomer sees.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write, pipe},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};

use super::{Run, duly, run};

/// Few enough for a build without optimisation.
const MESSAGES: &str = "5000";
const READMES: [&str; 2] =
    [include_str!("../../../../README.md"), include_str!("../../../../README.zh-CN.md")];

fn demo(folder: &Path, messages: &str, args: &[&str]) -> Command {
    let mut command = duly();
    command.env("TMPDIR", folder).args(["demo", "--messages", messages]).args(args);
    command
}

fn assert_nothing_is_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The lines with each number as `0`, and one space between words: what stays the same from run to run.
fn shape(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut shape = String::new();
        for letter in line.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
            let goes_on = shape.ends_with('0') && (letter.is_ascii_digit() || ".,".contains(letter));
            match letter {
                _ if goes_on => {}
                letter if letter.is_ascii_digit() => shape.push('0'),
                letter => shape.push(letter),
            }
        }
        shape
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Both outputs of the demo in the order in which they were written, and its exit code.
fn transcript(mut command: Command) -> (String, Option<i32>) {
    let (mut read, write) = pipe().unwrap();
    let mut child = command.stdout(write.try_clone().unwrap()).stderr(write).spawn().unwrap();
    // It holds the other ends of the pipe, which must be closed here for the text to end.
    drop(command);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    (text, child.wait().unwrap().code())
}

/// Elsewhere the memory of a process is not to be had, and a line is shorter.
#[test]
#[cfg(target_os = "linux")]
fn the_story_is_the_one_that_the_readmes_show() {
    let folder = tempfile::tempdir().unwrap();
    let (text, code) = transcript(demo(folder.path(), MESSAGES, &["--stay", "1ms"]));
    assert_eq!(code, Some(0), "{text}");
    assert_nothing_is_left(folder.path());
    assert!(!text.contains('\x1b'), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for readme in READMES {
        let shown = readme.split("```text\n").find(|block| block.starts_with("Duly ")).unwrap();
        let shown = shown.split("```").next().unwrap();
        assert_eq!(shape(&text), shape(shown), "{text}");
    }
}

#[test]
fn programs_get_every_number() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&mut demo(folder.path(), MESSAGES, &["-o", "json"]), b"");
    assert_eq!(run.code, 0, "{run:?}");
    let summary: Value = serde_json::from_str(&run.out).unwrap();
    let (outage, background, totals) = (&summary["outage"], &summary["background"], &summary["totals"]);
    assert_eq!((&outage["arrived"], &outage["attempt_max"]), (&json!(12), &json!(1)), "{summary}");
    assert_eq!(background["accepted"], json!(5_000), "{summary}");
    assert!(background["disk_bytes"].as_u64().unwrap() > 0, "{summary}");
    for (what, count) in [("accepted", 5_016), ("delivered", 15), ("cancelled", 1), ("pending", 5_000)] {
        assert_eq!(totals[what], json!(count), "{what}: {summary}");
    }
    assert!(run.words.contains("duly demo --stay keeps it open"), "without a terminal it ends: {run:?}");
    assert_nothing_is_left(folder.path());
}

#[test]
fn quiet_leaves_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let Run { code, out, words } = run(&mut demo(folder.path(), MESSAGES, &["-q"]), b"");
    assert_eq!((code, words.as_str()), (0, ""));
    assert_eq!(out, "Ledger   5,016 accepted = 15 delivered + 1 cancelled + 5,000 pending\n");
}

#[test]
fn without_a_place_for_its_folder_it_says_so() {
    let run = run(&mut demo(Path::new("/nowhere"), MESSAGES, &[]), b"");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("TMPDIR"), "{run:?}");
}

/// Reads lines until one contains `text`; gives that one.
fn until(lines: &mut impl BufRead, text: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "no {text:?} in {all}");
        if line.contains(text) {
            return line;
        }
        all += &line;
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_step_that_fails_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(folder.path(), MESSAGES, &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    until(&mut lines, "An order that nobody pays");
    // From here on the store cannot write.
    let limit = Rlimit { current: Some(4_096), maximum: None };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).unwrap();
    let why = until(&mut lines, "error: ");
    assert!(why.starts_with("error: step ") && why.contains("File too large"), "{why}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_nothing_is_left(folder.path());
}

#[test]
fn interrupted_in_the_middle_it_leaves_no_process_and_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut command = demo(folder.path(), "10000000", &[]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        // By then messages are accepted in the background, and others wait for the receiver.
        until(&mut lines, "12 of 12: the receiver is unreachable");
        kill_process(Pid::from_child(&child), signal).unwrap();
        until(&mut lines, "error: interrupted");
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert_nothing_is_left(folder.path());
    }
}

/// On a terminal, by util-linux's `script`: what is written to the child's stdin is typed there.
#[cfg(target_os = "linux")]
fn on_a_terminal(folder: &Path, no_color: &str) -> Child {
    let line =
        format!("stty rows 40 cols 80; exec '{}' demo --messages {MESSAGES}", env!("CARGO_BIN_EXE_duly"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.env("TMPDIR", folder).env("TERM", "xterm").env("NO_COLOR", no_color);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn on_a_terminal_its_console_stays_until_ctrl_c() {
    for (no_color, is_coloured) in [("", true), ("1", false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = on_a_terminal(folder.path(), no_color);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let console = until(&mut lines, "Console");
        assert!(console.contains(" for 60 s; Ctrl-C ends it at once"), "{console}");
        assert_eq!(console.contains("\x1b[36m"), is_coloured, "{console:?}");
        let addr = console.split("http://").nth(1).unwrap().split(['\x1b', ' ']).next().unwrap();
        let mut call = TcpStream::connect(addr).unwrap();
        call.write_all(format!("GET / HTTP/1.0\r\nhost: {addr}\r\n\r\n").as_bytes()).unwrap();
        let mut page = String::new();
        call.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.0 200") && page.contains("<html"), "{page}");
        child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_nothing_is_left(folder.path());
    }
}
