//! `duly import` while the server's store fails and comes back.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
    sync::Arc,
};

use duly::{Duly, StoreErrorKind};
use duly_server::{
    config::{AlertRules, Config},
    http::{App, AppParts, Front, Listening, listen},
    telemetry::Telemetry,
};
use duly_stores::MemoryStore;
use serde_json::{Value, json};
use testkit::fault::{Call, FailingStore};
use tokio::{net::TcpListener, sync::watch};

use super::duly as command;

/// A server on a store that fails when told.
struct Fragile {
    runtime: tokio::runtime::Runtime,
    duly: Duly,
    store: Arc<FailingStore>,
    listening: Listening,
    _stopping: watch::Sender<bool>,
}

impl Fragile {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = FailingStore::new(Arc::new(MemoryStore::new()));
        let (duly, listening, stopping) = runtime.block_on(async {
            let duly = Duly::builder().store(store.clone()).start().await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = Config { listen: listener.local_addr().unwrap(), ..Config::default() };
            let telemetry = Telemetry::start(duly.clone(), AlertRules::default(), Arc::default());
            let (stopping, stopped) = watch::channel(false);
            let parts =
                AppParts { duly: duly.clone(), sinks: Default::default(), telemetry, stopping: stopped };
            let front = Front::new(App::new(&config, parts));
            (duly, listen(listener, None, front, &config.http).unwrap(), stopping)
        });
        Self { runtime, duly, store, listening, _stopping: stopping }
    }

    /// Imports `count` lines while `failures` happen one after the other: each lasts until the command reports its code and waits.
    fn import(&self, count: usize, failures: &[(Call, StoreErrorKind, &str)]) -> Value {
        let (first, rest) = failures.split_first().unwrap();
        self.store.fail([first.0], first.1);
        let mut child = command()
            .env("DULY_URL", format!("http://{}", self.listening.addr()))
            .args(["import", "-", "--batch", "4", "--patience", "2m", "-o", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: String =
            (0..count).map(|i| format!("{{\"topic\":\"t\",\"delay\":\"1h\",\"id\":\"o-{i}\"}}\n")).collect();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut until = |code: &str| {
            let mut seen = Vec::new();
            for line in words.by_ref() {
                if line.contains(code) && line.ends_with("; trying again") {
                    return;
                }
                seen.push(line);
            }
            panic!("the command ended without waiting for {code}: {seen:?}");
        };
        until(first.2);
        for (call, kind, code) in rest {
            self.store.fail([*call], *kind);
            until(code);
        }
        self.store.fail([], StoreErrorKind::Unavailable);
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let said: Vec<String> = words.collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{out} {said:?}");
        assert!(!said.iter().any(|line| line.contains("line ")), "no line is blamed: {said:?}");
        serde_json::from_str(&out).unwrap()
    }

    fn pending(&self) -> u64 {
        self.runtime.block_on(self.duly.totals()).unwrap().pending
    }
}

#[test]
fn an_import_waits_for_a_store_that_is_away_or_full_and_imports_every_line_once() {
    let server = Fragile::start();
    let counts = server.import(
        10,
        &[
            (Call::Insert, StoreErrorKind::Unanswered, "[store_unanswered]"),
            (Call::Insert, StoreErrorKind::Unavailable, "[store_unavailable]"),
            (Call::Insert, StoreErrorKind::Full, "[disk_full]"),
        ],
    );
    assert_eq!(counts, json!({"lines":10,"accepted":10,"duplicates":0,"refused":0,"dry_run":false}));
    assert_eq!(server.pending(), 10);
}

#[test]
fn a_line_that_was_stored_without_an_answer_is_imported_once() {
    let server = Fragile::start();
    let failures = [(Call::InsertAnswer, StoreErrorKind::Unanswered, "[store_unanswered]")];
    let counts = server.import(10, &failures);
    assert_eq!(counts, json!({"lines":10,"accepted":6,"duplicates":4,"refused":0,"dry_run":false}));
    assert_eq!(server.pending(), 10);
}

#[test]
fn an_import_reads_no_more_answers_than_it_sent_lines() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Each call gets answers without end: it ends only when the command hangs up.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let line = "{\"error\":{\"code\":\"bad_topic\",\"detail\":\"x\"}}\n";
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut sent = stream.write_all(head.as_bytes());
            while sent.is_ok() {
                sent = stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes());
            }
        }
    });
    let mut child = command()
        .env("DULY_URL", url)
        .args(["import", "-", "--patience", "1s"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{\"topic\":\"t\",\"delay\":\"1h\"}\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("more answers than lines"), "{words}");
}
