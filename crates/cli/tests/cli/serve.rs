//! `duly serve` as a process of its own.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

use duly_client::wire::Message;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::{Run, duly, run};

/// A server as a process.
pub(super) struct Process {
    child: Child,
    pub(super) url: String,
    words: Lines<BufReader<ChildStderr>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ended, or its test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts it, and waits until it listens.
    pub(super) fn start(folder: &Path, listen: &str) -> Self {
        Self::of(duly().args(["serve", "--listen", listen, "--data", "data"]), folder)
    }

    pub(super) fn of(command: &mut Command, folder: &Path) -> Self {
        // Away from a configuration of whoever runs the tests.
        command.current_dir(folder);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = words.by_ref().map(Result::unwrap).find(|line| line.contains("listens on")).unwrap();
        let url = said.split_whitespace().find(|word| word.starts_with("http")).unwrap();
        Self { url: url.trim_end_matches(',').to_owned(), child, words }
    }

    fn run(&self, args: &[&str]) -> Run {
        run(duly().env("DULY_URL", &self.url).args(args), b"")
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end: the code and its last words.
    pub(super) fn end(mut self) -> (Option<i32>, Vec<String>) {
        let words = self.words.by_ref().map(Result::unwrap).collect();
        (self.child.wait().unwrap().code(), words)
    }
}

#[test]
fn a_signal_stops_it_cleanly_and_everything_is_there_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let server = Process::start(folder.path(), "127.0.0.1:0");
        let id = format!("m-{round}");
        assert_eq!(server.run(&["send", "order", "x", "--id", &id, "--in", "1h"]).code, 0);
        server.signal(signal);
        let (code, words) = server.end();
        assert_eq!(code, Some(0), "{words:?}");
        assert!(words.last().unwrap().contains("stopped"), "{words:?}");
    }
    let server = Process::start(folder.path(), "127.0.0.1:0");
    for id in ["m-0", "m-1"] {
        let run = server.run(&["get", id, "-o", "json"]);
        assert_eq!(serde_json::from_str::<Message>(&run.out).unwrap().state, "pending");
    }
    server.signal(Signal::TERM);
    server.end();
}

#[test]
fn a_second_signal_stops_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::start(folder.path(), "127.0.0.1:0");
    // A call that does not end keeps a clean stop waiting.
    let mut call = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    call.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").unwrap();
    server.signal(Signal::TERM);
    let said = server.words.by_ref().map(Result::unwrap).find(|line| line.contains("shutdown started"));
    assert!(said.is_some());
    server.signal(Signal::TERM);
    let (code, words) = server.end();
    assert_eq!(code, Some(1), "{words:?}");
    assert!(words.iter().any(|line| line.contains("stopped at once")), "{words:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn it_takes_the_open_files_that_its_connections_need() {
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -S -n 256 && exec \"$0\" serve --listen 127.0.0.1:0 --data data";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_duly")]);
    let server = Process::of(&mut shell, folder.path());
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft > 256, "{files}");
}

/// By itself SIGXFSZ ends a process, and nothing says why.
#[test]
#[cfg(target_os = "linux")]
fn a_limit_of_file_sizes_is_told_and_ends_nothing_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -f 100 && exec \"$0\" serve --listen 127.0.0.1:0 --data data";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_duly")]).current_dir(folder.path());
    let refused = run(&mut shell, b"");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.words.contains("raise the limit (ulimit -f)"), "{refused:?}");

    let server = Process::start(folder.path(), "127.0.0.1:0");
    let pid = Pid::from_child(&server.child);
    let limit = Rlimit { current: Some(4_096), maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    let sent = server.run(&["send", "order", &"x".repeat(9_000), "--in", "1h"]);
    assert_ne!(sent.code, 0, "{sent:?}");
    // It has stopped if the journal was to be longer; if only the next segment was, new messages are refused as on a full disk.
    server.signal(Signal::TERM);
    let (code, words) = server.end();
    assert_eq!(code, Some(1), "{words:?}");
    assert!(words.iter().any(|line| line.contains("File too large")), "{words:?}");
}

#[test]
fn a_data_folder_and_a_port_are_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path(), "127.0.0.1:0");
    let serve = |listen: &str, data: &str| {
        let args = ["serve", "--listen", listen, "--data", data];
        run(duly().current_dir(folder.path()).args(args), b"")
    };
    let second = serve("127.0.0.1:0", "data");
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.words.contains("data folder"), "{second:?}");
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let third = serve(&address, "other");
    assert_eq!(third.code, 1, "{third:?}");
    assert!(third.words.contains("cannot listen"), "{third:?}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_bad_configuration_is_told_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("duly.toml"), "lisen = \"127.0.0.1:0\"\ndeliver = 7\n").unwrap();
    let run = run(duly().current_dir(folder.path()).arg("serve"), b"");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("lisen") && run.words.contains("deliver"), "every problem at once: {run:?}");
    assert!(!folder.path().join("duly-data").exists());
}

#[test]
fn beyond_this_machine_it_wants_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(duly().current_dir(folder.path()).args(["serve", "--listen", "0.0.0.0:0"]), b"");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("token"), "{run:?}");
}

#[test]
fn what_cannot_be_a_filter_of_the_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(duly().current_dir(folder.path()).env("DULY_LOG", "duly=loud").arg("serve"), b"");
    assert_eq!(run.code, 2, "{run:?}");
}
