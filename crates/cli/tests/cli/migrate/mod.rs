//! `duly migrate-store`, between real stores.

mod live;
mod outbox;

use std::path::{Path, PathBuf};

use duly::{Message, MessageId, Record, RetryOverride, State, hours};
use duly_server::config::{Config, Sources, StoreSetup};
use serde_json::{Value, json};
use testkit::servers::{
    mysql, postgres,
    redis::{self as server, Redis},
};

use super::{Run, Server, duly, run};

/// A server on the store that this names for a move: its address, or a configuration file.
fn on(location: &str) -> Server {
    let sources = match location.split_once("://") {
        None => Sources { file: Some(location.into()), ..Sources::default() },
        Some((kind, _)) => {
            let address = format!("DULY__STORE__{}", kind.to_uppercase());
            let environment =
                vec![("DULY__STORE__KIND".to_owned(), kind.to_owned()), (address, location.to_owned())];
            Sources { environment, ..Sources::default() }
        }
    };
    let store = Config::load(&sources).unwrap().store;
    Server::with(|config| config.store = store)
}

fn on_folder(data: &Path) -> Server {
    Server::with(|config| config.store = StoreSetup::in_folder(data))
}

impl Server {
    /// Sends many at once.
    fn fill(&self, messages: impl IntoIterator<Item = Message>) {
        let duly = self.running.as_ref().unwrap().duly();
        for answer in self.runtime.block_on(duly.send_batch(messages)) {
            answer.unwrap();
        }
    }

    fn record(&self, id: &str) -> Option<Record> {
        let duly = self.running.as_ref().unwrap().duly();
        self.runtime.block_on(duly.get(MessageId::parse(id).unwrap())).unwrap()
    }

    /// Sends a message whose first try fails, so that it waits for the next.
    fn tried(&self, id: &str) {
        self.ok(&["send", "order", "again", "--id", id, "--attempts", "5"]);
        let received: duly_client::wire::Received =
            self.json(&["receive", "order", "--wait", "10s", "--max", "1"]);
        assert_eq!(received.messages[0].id, id);
        self.ok(&["nack", "order", &received.messages[0].receipt, "--in", "10h"]);
    }

    fn totals(&self) -> duly::Totals {
        let duly = self.running.as_ref().unwrap().duly();
        self.runtime.block_on(duly.totals()).unwrap()
    }
}

fn migrate(from: &str, to: &str, more: &[&str]) -> Run {
    run(duly().args(["migrate-store", "--from", from, "--to", to, "-o", "json"]).args(more), b"")
}

/// A run that must end well, and what it told.
fn moved(from: &str, to: &str, more: &[&str]) -> Value {
    let run = migrate(from, to, more);
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.out).unwrap()
}

/// Messages of every make, due from an hour ago to many hours ahead.
fn all_kinds(count: usize) -> Vec<Message> {
    let message = |number: usize| {
        let message = Message::to(format!("topic-{}", number % 7)).id(format!("m-{number}"));
        let message = message.after(hours(1 + number as u64 % 50)).priority((number % 10) as u8);
        match number % 5 {
            0 => message.text(format!("text {number}")),
            1 => message.json(&json!({"order": number})).unwrap().property("tenant", "a"),
            2 => message.bytes(vec![0xff, number as u8]).tag("blue"),
            3 => message.key("k").max_lateness(hours(1000)).text("x".repeat(number * 10)),
            _ => message.retry(RetryOverride { attempts: Some(3), ..RetryOverride::default() }),
        }
    };
    (0..count).map(message).collect()
}

fn ids(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("m-{number}"))
}

/// What waits for its next try at the source is ready at the target when it is due.
fn as_moved(mut record: Record) -> Record {
    record.ready = record.message.due;
    record
}

#[test]
fn two_thousand_messages_go_to_redis_and_back_as_they_were() {
    if !server::installed() {
        return;
    }
    const COUNT: usize = 2_000;
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let (data, back): (PathBuf, PathBuf) = (folder.path().join("data"), folder.path().join("back"));
    let (data_text, back_text, url) = (data.to_str().unwrap(), back.to_str().unwrap(), redis.url());
    let source = on_folder(&data);
    source.fill(all_kinds(COUNT));
    source.ok(&["pause", "topic-3"]);
    let before: Vec<_> = ids(COUNT).map(|id| source.record(&id).unwrap()).collect();
    let run = migrate(data_text, &url, &[]);
    assert!(run.code == 1 && run.words.contains("must be stopped for the move"), "{run:?}");
    drop(source);

    let report = moved(data_text, &url, &[]);
    assert_eq!((&report["moved"], &report["complete"]), (&json!(COUNT), &json!(true)), "{report}");
    let target = on(&redis.url());
    for (id, before) in ids(COUNT).zip(&before) {
        assert_eq!(target.record(&id).as_ref(), Some(before));
    }
    let queues: Value = target.json(&["queues"]);
    let paused = queues["queues"].as_array().unwrap().iter().filter(|queue| queue["paused"] == true);
    assert_eq!(paused.map(|queue| &queue["topic"]).collect::<Vec<_>>(), [&json!("topic-3")]);
    let source = on_folder(&data);
    assert_eq!((source.totals().pending, source.totals().cancelled), (0, COUNT as u64));

    // The server on Redis goes on meanwhile: it has nothing to deliver yet.
    let report = moved(&url, back_text, &["--batch", "300"]);
    assert_eq!((&report["moved"], &report["left"]["pending"]), (&json!(COUNT), &json!(0)), "{report}");
    assert_eq!(target.totals().pending, 0);
    let nodes: Value = target.json(&["nodes"]);
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 1, "a move leaves no node behind: {nodes}");
    let target = on_folder(&back);
    for (id, before) in ids(COUNT).zip(&before) {
        assert_eq!(target.record(&id).as_ref(), Some(before));
    }
    assert_eq!(target.totals().pending, COUNT as u64);
}

#[test]
fn messages_go_through_every_kind_of_store_and_come_back_as_they_were() {
    if !server::installed() || !mysql::installed() || !postgres::installed() {
        return;
    }
    const COUNT: usize = 300;
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let (mysql, postgres) = (mysql::shared().fresh_database(), postgres::shared().fresh_database());
    let (index, truth) = (Redis::single(), mysql::shared().fresh_database());
    let both = folder.path().join("both.toml");
    let store = format!("[store]\nkind = \"redis+mysql\"\nredis = \"{}\"\nmysql = \"{truth}\"", index.url());
    std::fs::write(&both, store).unwrap();
    let both = both.to_str().unwrap().to_owned();
    let data = folder.path().join("data");
    let source = on_folder(&data);
    source.fill(all_kinds(COUNT));
    source.tried("tried");
    source.dead("poison");
    let all = || ids(COUNT).chain(["tried".into(), "poison".into()]);
    let before: Vec<_> = all().map(|id| as_moved(source.record(&id).unwrap())).collect();
    assert!(before[COUNT..].iter().all(|record| record.attempts == 1 && record.history.len() == 1));
    drop(source);
    let (data, url) = (data.to_str().unwrap(), redis.url());
    for (from, to) in [(data, &mysql), (&mysql, &postgres), (&postgres, &both), (&both, &url)] {
        let run = migrate(to, "redis://127.0.0.1:1", &[]);
        assert_eq!(run.code, 3, "{to} has no store yet: {run:?}");
        let report = moved(from, to, &["--batch", "100"]);
        let summary = (&report["moved"], &report["dead"], &report["complete"]);
        assert_eq!(summary, (&json!(COUNT + 1), &json!(1), &json!(true)), "{report}");
        let (again, target) = (moved(from, to, &[]), on(to));
        assert_eq!((&again["moved"], &again["dead"]), (&json!(0), &json!(0)));
        assert_eq!((target.totals().pending, target.totals().dead), (COUNT as u64 + 1, 1));
        let poison = target.record("poison").map(as_moved);
        assert_eq!(poison.as_ref(), before.last(), "in {to}");
    }
    moved(&url, data, &[]);
    let back = on_folder(Path::new(data));
    for (id, before) in all().zip(&before) {
        assert_eq!(back.record(&id).map(as_moved).as_ref(), Some(before));
    }
}

#[test]
fn a_store_that_is_away_at_the_start_is_waited_for_and_then_5() {
    if !server::installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(on_folder(&data));
    let data = data.to_str().unwrap();
    let nobody = "redis://127.0.0.1:1";
    for (from, to, flag, more) in [
        (data, nobody, "--to", &[][..]),
        (nobody, data, "--from", &[]),
        (nobody, data, "--from", &["--dry-run"]),
        (data, "mysql://root@127.0.0.1:1/duly", "--to", &[]),
        (data, "postgres://root@127.0.0.1:1/duly", "--to", &[]),
    ] {
        let run = migrate(from, to, &[&["--patience", "1s"], more].concat());
        assert_eq!(run.code, 5, "{from} to {to}: {run:?}");
        assert!(run.words.contains(flag) && run.words.contains("trying again"), "{run:?}");
    }
    // One that takes the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mysql://root@{}/duly", silent.local_addr().unwrap());
    assert_eq!(migrate(data, &url, &["--patience", "1s"]).code, 5);
    // What is there and refuses is not waited for.
    let volatile = Redis::with(server::Options { aof: false, ..server::Options::default() });
    let run = migrate(data, &volatile.url(), &[]);
    assert!(run.code == 1 && !run.words.contains("trying again"), "{run:?}");
}

#[test]
fn a_move_forgets_nothing_that_servers_keep() {
    if !postgres::installed() {
        return;
    }
    let (server, folder) = (postgres::shared(), tempfile::tempdir().unwrap());
    let url = server.fresh_database();
    let source = on(&url);
    source.ok(&["send", "order", "old", "--id", "old", "--in", "1h"]);
    source.ok(&["cancel", "old"]);
    drop(source);
    // Cancelled a year ago, as somebody has it who keeps it for two.
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let year = 365_u64 * 86_400_000;
    server.run_in(
        database,
        &format!(
            "UPDATE delay_message SET end_time_ms = end_time_ms - {year}, queue_at = queue_at - {year}000"
        ),
    );
    moved(&url, folder.path().join("data").to_str().unwrap(), &[]);
    assert_eq!(server.run_in(database, "SELECT message_id FROM delay_message").trim(), "old");
}

#[test]
fn a_dry_run_tells_per_lane_and_changes_nothing() {
    if !server::installed() {
        return;
    }
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let (data, to) = (folder.path().join("data"), folder.path().join("not-there"));
    let server = on_folder(&data);
    server.fill(all_kinds(70));
    server.dead("dead");
    server.ok(&["send", "order", "due", "--id", "due"]);
    drop(server);
    for to in [to.to_str().unwrap(), &redis.url()] {
        let plan = moved(data.to_str().unwrap(), to, &["--dry-run"]);
        let totals = ["pending", "ready", "in_flight", "dead"].map(|name| plan[name].as_u64().unwrap());
        assert_eq!(totals, [71, 1, 0, 1], "{plan}");
        let lanes = plan["lanes"].as_array().unwrap();
        let lane = lanes.iter().find(|lane| lane["lane"] == "queue/topic-4").unwrap();
        assert_eq!((&lane["pending"], &lane["paused"]), (&json!(10), &json!(false)));
    }
    let words =
        run(duly().args(["migrate-store", "--dry-run", "--from"]).arg(&data).arg("--to").arg(&to), b"");
    assert!(
        words.out.contains("71 would be moved") && words.out.contains("1 dead letters would be moved, too"),
        "{words:?}"
    );
    assert!(!to.exists());
    assert_eq!(redis.run::<u64>(&["DBSIZE"]), 0);
    let totals = on_folder(&data).totals();
    assert_eq!((totals.pending, totals.dead, totals.cancelled), (71, 1, 0));
}

#[test]
fn an_id_that_means_something_else_at_the_target_stays_and_is_named() {
    if !server::installed() {
        return;
    }
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let data = folder.path().join("data");
    let source = on_folder(&data);
    source.fill(all_kinds(50));
    source.dead("poison");
    drop(source);
    let target = on(&redis.url());
    target.fill([Message::to("other").id("m-7").after(hours(5))]);
    let (data, url) = (data.to_str().unwrap(), redis.url());
    let run = migrate(data, &url, &[]);
    assert_eq!(run.code, 4, "{run:?}");
    assert!(run.words.contains("m-7: the target knows this id with other content"), "{run:?}");
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["moved"], &report["conflicts"]), (&json!(49), &json!(1)));
    assert_eq!((&report["conflicting"], &report["dead"]), (&json!(["m-7"]), &json!(1)));
    assert_eq!(target.record("m-7").unwrap().message.topic.as_str(), "other");
    assert_eq!(target.record("poison").unwrap().state, State::Dead);
    target.ok(&["cancel", "m-7"]);
    let source = on_folder(Path::new(data));
    source.dead("poison-2");
    drop(source);
    let report = moved(data, &url, &["--replay-dead"]);
    assert_eq!(
        (&report["moved"], &report["dead"], &report["replayed"], &report["left"]["dead"]),
        (&json!(1), &json!(1), &json!(1), &json!(0))
    );
    assert_eq!(target.record("m-7").unwrap().message.topic.as_str(), "topic-0");
    assert_eq!(target.record("poison-2").unwrap().state, State::Pending);
}

#[test]
fn a_store_is_not_moved_into_itself_by_another_name() {
    if !server::installed() {
        return;
    }
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let (data, same) = (folder.path().join("data"), folder.path().join(".").join("data"));
    let server = on_folder(&data);
    server.fill(all_kinds(10));
    drop(server);
    let run = migrate(data.to_str().unwrap(), same.to_str().unwrap(), &[]);
    assert!(run.code == 2 && run.words.contains("one and the same store"), "{run:?}");
    assert_eq!(on_folder(&data).totals().pending, 10);
    let server = on(&redis.url());
    server.fill(all_kinds(10));
    let run = migrate(&redis.url(), &format!("redis://localhost:{}/0", redis.port()), &[]);
    assert!(run.code == 2 && run.words.contains("one and the same store"), "{run:?}");
    assert_eq!(server.totals().pending, 10);
}

#[test]
fn what_is_not_there_is_told_and_no_secret_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let run = migrate(missing.to_str().unwrap(), "redis://:geheim@127.0.0.1:1", &[]);
    assert!(run.code == 3 && run.words.contains("no store of Duly's"), "{run:?}");
    assert!(!missing.exists());
    let data = folder.path().join("data");
    drop(on_folder(&data));
    let (data, away) = (data.to_str().unwrap(), "redis://:geheim@127.0.0.1:1");
    for run in [migrate(data, away, &[]), migrate(away, data, &[])] {
        assert!(run.code != 0 && !run.words.contains("geheim"), "{run:?}");
        assert!(run.words.contains("--to") || run.words.contains("--from"), "{run:?}");
    }
    if !server::installed() {
        return;
    }
    let redis = Redis::single();
    let run = migrate(&redis.url(), data, &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert_eq!(redis.run::<u64>(&["DBSIZE"]), 0, "none is made where there is none to move from");
}

#[test]
fn a_configuration_file_and_secrets_in_files_say_where_too() {
    if !server::installed() {
        return;
    }
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::single());
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let data = folder.path().join("data");
    drop(on_folder(&data));
    let server = on_folder(&data);
    server.fill(all_kinds(20));
    drop(server);
    let from = write("from.toml", &format!("data = {:?}", data.display().to_string()));
    let to = write("to.toml", "[store]\nkind = \"redis\"\nshards = 4");
    let secret = write("secret", &redis.url());
    let mut command = duly();
    command.args(["migrate-store", "-o", "json", "--from"]).arg(&from).arg("--to").arg(&to);
    command.env("DULY_TO__STORE__REDIS_FILE", &secret).env("DULY__STORE__KIND", "nonsense");
    let run = run(&mut command, b"");
    assert!(run.code == 0 && run.words.contains("DULY_FROM__"), "{run:?}");
    assert_eq!(redis.run::<u64>(&["HGET", "duly:{main}:store", "shards"]), 4);
    // An address alone says nothing of shards.
    let run = migrate(&redis.url(), data.to_str().unwrap(), &[]);
    assert!(run.code == 1 && run.words.contains("DULY_FROM__STORE__"), "{run:?}");
}
