//! The command line as people run it: the real binary against a real server.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod access;
mod backup;
mod bench;
mod bulk;
mod codes;
mod demo;
mod import;
mod import_outage;
mod import_redis;
mod kills;
mod looks;
mod messages;
mod migrate;
mod nodes;
mod overview;
mod serve;
mod tail;
mod telemetry;

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use duly_server::{
    config::{Config, StoreSetup},
    serve::{Running, start},
};
use serde::de::DeserializeOwned;

/// A server of its own for one test.
struct Server {
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    url: String,
    folder: tempfile::TempDir,
}

/// How a run of the binary ended.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    words: String,
}

impl Server {
    fn start() -> Self {
        Self::with(|_| ())
    }

    /// With another configuration than the usual.
    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreSetup::in_folder(folder.path().join("data")),
            ..Config::default()
        };
        change(&mut config);
        let running = runtime.block_on(start(config)).unwrap();
        Self { runtime, url: running.url(), running: Some(running), folder }
    }

    fn command(&self) -> Command {
        let mut command = duly();
        command.env("DULY_URL", &self.url);
        command
    }

    /// Runs the binary; it must end well.
    fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(run.code, 0, "{args:?}: {run:?}");
        run.out
    }

    /// Runs the binary with `-o json`; it must end well, and write this shape.
    fn json<T: DeserializeOwned>(&self, args: &[&str]) -> T {
        let out = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}"))
    }

    fn run(&self, args: &[&str]) -> Run {
        run(self.command().args(args), b"")
    }

    fn run_with(&self, args: &[&str], input: &[u8]) -> Run {
        run(self.command().args(args), input)
    }

    /// A message that was given up.
    fn dead(&self, id: &str) {
        self.ok(&["send", "order", "poison", "--id", id, "--attempts", "1"]);
        let received: duly_client::wire::Received =
            self.json(&["receive", "order", "--wait", "10s", "--max", "1"]);
        assert_eq!(received.messages[0].id, id);
        self.ok(&["nack", "order", &received.messages[0].receipt]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = self.runtime.block_on(running.stop());
        }
    }
}

/// The binary, with none of the settings of whoever runs the tests.
fn duly() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
    for name in ["DULY_URL", "DULY_TOKEN", "DULY_TOKEN_FILE", "DULY_CA", "DULY_LOG", "RUST_LOG", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("OTEL_SDK_DISABLED", "true");
    command
}

fn run(command: &mut Command, input: &[u8]) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that does not read is gone already: its exit code tells.
    let _ = child.stdin.take().unwrap().write_all(input);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    Run {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8(stdout).unwrap(),
        words: String::from_utf8(stderr).unwrap(),
    }
}
