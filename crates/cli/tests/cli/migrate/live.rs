//! A move while the nodes of both stores deliver, producers send and clients cancel, killed again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use duly::{Changed, millis};
use duly_core::schedule::Random;
use testkit::servers::{program::Program, wait_until};

use super::*;

const TOPIC: &str = "order";
const KILLS: u64 = 5;
/// What takes longer never comes.
const LIMIT: Duration = Duration::from_secs(120);

/// Receives and acknowledges everything of a server, until it is dropped.
struct Receiver {
    child: Child,
    file: PathBuf,
}

impl Receiver {
    fn start(server: &Server, file: PathBuf) -> Self {
        let mut command = server.command();
        command.args(["receive", TOPIC, "--follow", "--ack", "-o", "json", "--wait", "2s"]);
        command.stdout(File::create(&file).unwrap()).stderr(Stdio::null()).stdin(Stdio::null());
        Self { child: command.spawn().unwrap(), file }
    }

    /// How often each id was received, never before its time.
    fn received(&self) -> BTreeMap<String, usize> {
        let mut received = BTreeMap::new();
        let text = std::fs::read_to_string(&self.file).unwrap();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let message: Value = serde_json::from_str(line).unwrap();
            *received.entry(message["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        received
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends to a server, and cancels some of it a little later.
struct Clients {
    random: Random,
    sent: usize,
    sent_ids: BTreeSet<String>,
    cancelled: BTreeSet<String>,
}

impl Clients {
    fn send(&mut self, server: &Server, count: usize) {
        let message = |_| {
            self.sent += 1;
            let id = format!("o-{}", self.sent);
            self.sent_ids.insert(id.clone());
            Message::to(TOPIC)
                .id(&id)
                .after(millis(200 + self.random.draw() % 25_000))
                .text(format!("body of {id}"))
        };
        let messages: Vec<_> = (0..count).map(message).collect();
        server.fill(messages);
    }

    /// Cancels some at random; those that were moved or delivered are not there to be cancelled.
    fn cancel(&mut self, server: &Server, count: usize) {
        let duly = server.running.as_ref().unwrap().duly();
        for _ in 0..count {
            let id = format!("o-{}", 1 + self.random.draw() as usize % self.sent);
            if let Changed::Done { maybe_delivered: false } =
                server.runtime.block_on(duly.cancel(MessageId::parse(&id).unwrap())).unwrap()
            {
                self.cancelled.insert(id);
            }
        }
    }
}

fn arguments(from: &str, to: &str) -> Vec<String> {
    // Small batches, so that every kill finds one under way.
    let words = ["migrate-store", "--from", from, "--to", to, "--batch", "5", "-o", "json"];
    words.map(str::to_owned).into()
}

/// Moves from `from` to `to`, killed again and again, while `meanwhile` goes on; then until it is done.
fn move_with_kills(
    from: &str,
    to: &str,
    target: &Server,
    random: &mut Random,
    mut meanwhile: impl FnMut(u64),
) {
    for kill in 0..KILLS {
        let program = Program::new(env!("CARGO_BIN_EXE_duly"));
        let goal = target.totals().accepted + 20 + random.draw() % 60;
        program.start(&arguments(from, to));
        wait_until("some are moved", LIMIT, || {
            meanwhile(kill);
            target.totals().accepted >= goal || !program.is_alive()
        });
        if !program.is_alive() {
            // On a busy machine everything may be moved before anybody looks.
            assert!(
                kill > 0 && !program.log().contains("error"),
                "never killed in the middle: {}",
                program.log()
            );
            return;
        }
        program.kill();
    }
}

/// Whatever was accepted arrived once, unless its cancel was done: then not at all.
fn check(clients: &Clients, receivers: &[&Receiver]) {
    let arrived = || {
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for (id, count) in receivers.iter().flat_map(|receiver| receiver.received()) {
            *all.entry(id).or_default() += count;
        }
        all
    };
    let wanted: BTreeSet<_> = clients.sent_ids.difference(&clients.cancelled).cloned().collect();
    wait_until("everything has arrived", LIMIT, || arrived().len() >= wanted.len());
    let arrived = arrived();
    let twice: Vec<_> = arrived.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "more than once: {twice:?}");
    let came: BTreeSet<_> = arrived.into_keys().collect();
    assert_eq!(
        came.symmetric_difference(&wanted).collect::<Vec<_>>(),
        [""; 0],
        "lost, or in spite of a cancel"
    );
}

fn clients(seed: u64) -> Clients {
    Clients { random: Random::new(seed), sent: 0, sent_ids: BTreeSet::new(), cancelled: BTreeSet::new() }
}

/// Both stores deliver, producers send and clients cancel while the move between them is killed again and again.
fn each_message_arrives_once(from: &str, to: &str, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (on(from), on(to));
    let receivers = [(&source, "source"), (&target, "target")]
        .map(|(server, name)| Receiver::start(server, folder.path().join(name)));
    let (mut clients, mut random) = (clients(seed), Random::new(seed + 1));
    clients.send(&source, 1_500);
    move_with_kills(from, to, &target, &mut random, |kill| {
        // A slow producer still knows the source only.
        if kill < 3 {
            clients.send(&source, 2);
        }
        clients.cancel(&source, 2);
    });
    let last = moved(from, to, &[]);
    assert_eq!((&last["complete"], &last["forgotten"]), (&json!(true), &json!(0)), "{last}");
    assert_eq!((source.totals().pending, source.totals().in_flight), (0, 0));
    check(&clients, &[&receivers[0], &receivers[1]]);
    assert!(!receivers[0].received().is_empty() && !receivers[1].received().is_empty(), "both delivered");
    assert!(!clients.cancelled.is_empty());
    for server in [&source, &target] {
        let totals = server.totals();
        assert!(totals.balance() && totals.pending == 0, "{totals:?}");
    }
}

#[test]
fn killed_again_and_again_between_two_redis_at_work_each_message_arrives_once() {
    if server::installed() {
        let (here, there) = (Redis::single(), Redis::single());
        each_message_arrives_once(&here.url(), &there.url(), 1);
    }
}

#[test]
fn killed_again_and_again_between_two_databases_at_work_each_message_arrives_once() {
    if mysql::installed() && postgres::installed() {
        let (here, there) = (mysql::shared().fresh_database(), postgres::shared().fresh_database());
        each_message_arrives_once(&here, &there, 5);
    }
}

#[test]
fn a_move_that_slept_while_another_one_finished_does_no_harm() {
    if !server::installed() {
        return;
    }
    let mut random = Random::new(7);
    for _ in 0..3 {
        let (here, there) = (Redis::single(), Redis::single());
        let (source, target) = (on(&here.url()), on(&there.url()));
        source.fill(all_kinds(400));
        let first = Program::new(env!("CARGO_BIN_EXE_duly"));
        first.start(&arguments(&here.url(), &there.url()));
        let goal = 20 + random.draw() % 200;
        wait_until("some are moved", LIMIT, || target.totals().accepted >= goal);
        first.pause();
        // It waits until the other is taken for gone.
        moved(&here.url(), &there.url(), &[]);
        first.cont();
        wait_until("it ends", LIMIT, || !first.is_alive());
        assert_eq!((source.totals().pending, target.totals().pending), (0, 400), "{}", first.log());
        for id in ids(400) {
            assert_eq!(target.record(&id).unwrap().state, State::Pending);
        }
    }
}

#[test]
fn a_folder_is_emptied_into_a_store_at_work_however_often_the_move_is_killed() {
    if !server::installed() {
        return;
    }
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let data = folder.path().join("data");
    let (mut clients, mut random) = (clients(3), Random::new(4));
    let source = on_folder(&data);
    clients.send(&source, 1_000);
    drop(source);
    let target = on(&redis.url());
    let receiver = Receiver::start(&target, folder.path().join("received"));
    let from = text(&data);
    move_with_kills(from, &redis.url(), &target, &mut random, |_| clients.send(&target, 1));
    moved(from, &redis.url(), &[]);
    check(&clients, &[&receiver]);
    let totals = on_folder(&data).totals();
    assert!(totals.balance() && totals.pending == 0 && totals.in_flight == 0, "{totals:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_move_waits_for_what_is_under_way_and_only_one_goes_on_at_a_time() {
    if !server::installed() {
        return;
    }
    let (here, there) = (Redis::single(), Redis::single());
    let (source, target) = (on(&here.url()), on(&there.url()));
    source.fill(all_kinds(30));
    source.ok(&["send", TOPIC, "in hand", "--id", "held"]);
    let received: duly_client::wire::Received =
        source.json(&["receive", TOPIC, "--wait", "10s", "--lease", "1h"]);
    let first = Program::new(env!("CARGO_BIN_EXE_duly"));
    first.start(&arguments(&here.url(), &there.url()));
    wait_until("it waits", LIMIT, || first.log().contains("1 are under way at the source"));
    assert_eq!((target.totals().pending, source.totals().in_flight), (31, 1), "the marker is there, too");
    let second = migrate(&here.url(), &there.url(), &[]);
    assert!(second.code == 4 && second.words.contains("another migrate-store"), "{second:?}");
    assert!(first.is_alive());
    source.ok(&["nack", TOPIC, &received.messages[0].receipt, "--in", "1h"]);
    wait_until("it ends", LIMIT, || !first.is_alive());
    let record = target.record("held").unwrap();
    assert_eq!((record.state, record.attempts), (State::Pending, 1), "what was tried is kept");
    assert_eq!((target.totals().pending, source.totals().pending), (31, 0), "and the marker is gone");
}

#[test]
fn told_to_stop_it_stops_between_two_batches() {
    if !server::installed() {
        return;
    }
    let (here, there) = (Redis::single(), Redis::single());
    let (source, target) = (on(&here.url()), on(&there.url()));
    source.fill(all_kinds(100));
    source.ok(&["send", TOPIC, "in hand", "--id", "held"]);
    source.ok(&["receive", TOPIC, "--wait", "10s", "--lease", "1h"]);
    let mut child = duly();
    let child = child.args(arguments(&here.url(), &there.url())).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    wait_until("everything else is moved", LIMIT, || {
        source.totals().pending == 0 && target.totals().accepted > 100
    });
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let words = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && words.contains("Run it again to go on"), "{words}");
    let report = moved(&here.url(), &there.url(), &["--once"]);
    assert_eq!((&report["left"]["in_flight"], &report["complete"]), (&json!(1), &json!(false)), "{report}");
}
