//! `duly import redis`, from real Redis servers.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use duly_client::wire::{Message, Page, Stats};
use serde_json::{Value, json};
use testkit::servers::{
    redis::{self as server, Cluster, Redis, Sentinels},
    wait_until,
};

use super::Server;

/// Far away: nothing is delivered during a test.
const FAR: u64 = 1_900_000_000_000;

fn add(redis: &Redis, key: &str, score: impl ToString, member: &[u8]) {
    redis::cmd("ZADD").arg(key).arg(score.to_string()).arg(member).exec(&mut redis.connection()).unwrap();
}

fn card(redis: &Redis, key: &str) -> u64 {
    redis.run(&["ZCARD", key])
}

/// Every pending message, with its body.
fn pending(server: &Server) -> Vec<Message> {
    let list: Page = server.json(&["ls", "--state", "pending", "--all"]);
    let get = |message: &Message| server.json::<Message>(&["get", &message.id]);
    list.messages.iter().map(get).collect()
}

fn import<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["import", "redis", "--from", url], more].concat()
}

#[test]
fn members_of_sorted_sets_become_messages_and_leave_their_sets() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    add(&redis, "delay:order", FAR, br#"{"order":42}"#);
    add(&redis, "delay:order", FAR / 1000, b"in seconds");
    add(&redis, "delay:mail", format!("{}.5", FAR / 1000), b"in seconds");
    add(&redis, "delay:mail", FAR, b"\xff\x00");
    add(&redis, "other", FAR, b"not ours");
    redis.run::<()>(&["SET", "delay:text", "no sorted set"]);
    let url = redis.url();
    let report: Value = server.json(&import(&url, &["--pattern", "delay:*", "--strip-prefix", "delay:"]));
    assert_eq!((&report["accepted"], &report["removed"]), (&json!(4), &json!(4)), "{report}");
    let all: BTreeMap<_, _> = pending(&server)
        .into_iter()
        .map(|message| {
            let body = message.content.body.or(message.content.body_base64).unwrap();
            ((message.topic, body), message.times.deliver_at_ms)
        })
        .collect();
    let one = |topic: &str, body: &str| all[&(topic.to_owned(), body.to_owned())];
    assert_eq!(one("order", r#"{"order":42}"#), FAR);
    assert_eq!(one("order", "in seconds"), FAR);
    assert_eq!(one("mail", "in seconds"), FAR + 500, "equal members of two sets are two messages");
    assert_eq!(one("mail", "/wA="), FAR);
    assert_eq!([card(&redis, "delay:order"), card(&redis, "delay:mail"), card(&redis, "other")], [0, 0, 1]);
    let run = server.run(&import(&url, &["--pattern", "delay:*"]));
    assert_eq!(run.code, 3, "there is none any more: {run:?}");
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    for n in 0..300 {
        add(&redis, "delay:order", FAR + n, format!("m{n}").as_bytes());
    }
    add(&redis, "delay:order", 1_500_000_000, b"long overdue");
    let url = redis.url();
    let args = import(&url, &["--pattern", "delay:*", "--dry-run"]);
    let report: Value = server.json(&args);
    assert_eq!(
        (&report["messages"], &report["overdue"], &report["accepted"]),
        (&json!(301), &json!(1), &json!(0))
    );
    let key = &report["keys"][0];
    assert_eq!((&key["key"], &key["topic"]), (&json!("delay:order"), &json!("delay:order")));
    assert_eq!((&key["earliest_ms"], &key["latest_ms"]), (&json!(1_500_000_000_000_u64), &json!(FAR + 299)));
    assert_eq!(report["examples"].as_array().unwrap().len(), 3);
    let words = server.ok(&args);
    assert!(words.contains("301 would be moved, 1 of them are overdue"), "{words}");
    assert_eq!(card(&redis, "delay:order"), 301);
    assert_eq!(server.json::<Stats>(&["stats"]).totals.accepted, 0);
}

#[test]
fn sets_that_are_kept_are_known_the_second_time() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    for n in 0..500 {
        add(&redis, "delay:order", FAR + n, format!("m{n}").as_bytes());
    }
    let url = redis.url();
    let first: Value = server.json(&import(&url, &["--pattern", "delay:*", "--keep", "--batch", "64"]));
    assert_eq!((&first["accepted"], &first["removed"]), (&json!(500), &json!(0)));
    assert_eq!(card(&redis, "delay:order"), 500);
    // As if the first run had been cut off between Duly's answer and the removal.
    let second: Value = server.json(&import(&url, &["--pattern", "delay:*"]));
    assert_eq!((&second["duplicates"], &second["removed"]), (&json!(500), &json!(500)));
    assert_eq!(card(&redis, "delay:order"), 0);
    assert_eq!(server.json::<Stats>(&["stats"]).totals.accepted, 500);
}

#[test]
fn an_import_that_is_killed_and_run_again_moves_each_member_once() {
    if !server::installed() {
        return;
    }
    const MEMBERS: u64 = 3_000;
    let (server, redis) = (Server::start(), Redis::single());
    let mut fill = redis::pipe();
    for n in 0..MEMBERS {
        fill.cmd("ZADD").arg("delay:order").arg(FAR + n).arg(format!("member {n}")).ignore();
    }
    fill.exec(&mut redis.connection()).unwrap();
    let url = redis.url();
    let args = import(&url, &["--pattern", "delay:*", "--batch", "10"]);
    for kill in 1..=3 {
        let mut child = server.command();
        let mut child = child.args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let goal = MEMBERS - kill * 500;
        wait_until("some are moved", Duration::from_secs(60), || card(&redis, "delay:order") <= goal);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let left = card(&redis, "delay:order");
    assert!(left > 0, "the kills came in the middle");
    let report: Value = server.json(&args);
    assert_eq!(report["accepted"].as_u64().unwrap() + report["duplicates"].as_u64().unwrap(), left);
    assert_eq!(card(&redis, "delay:order"), 0);
    assert_eq!(server.json::<Stats>(&["stats"]).totals.accepted, MEMBERS);
}

#[test]
fn bodies_may_lie_elsewhere() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    for id in ["1", "2", "gone"] {
        add(&redis, "timeouts", FAR, id.as_bytes());
    }
    redis.run::<()>(&["MSET", "order:1", r#"{"order":1}"#, "order:2", r#"{"order":2}"#]);
    redis.run::<()>(&["HSET", "bodies", "gone", r#"{"order":3}"#]);
    let url = redis.url();
    let common = ["--pattern", "timeouts", "--topic", "order", "--json"];
    let args = import(&url, &[&common[..], &["--body-key", "order:{member}"]].concat());
    let run = server.run(&args);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("member \"gone\"") && run.words.contains("order:gone"), "{run:?}");
    let hash = ["--body-key", "bodies", "--body-field", "{member}"];
    server.ok(&import(&url, &[&common[..], &hash].concat()));
    let mut bodies: Vec<_> =
        pending(&server).into_iter().map(|message| message.content.body.unwrap()).collect();
    bodies.sort();
    assert_eq!(bodies, [r#"{"order":1}"#, r#"{"order":2}"#, r#"{"order":3}"#]);
    assert_eq!(card(&redis, "timeouts"), 0);
    let run = server.run(&import(&url, &["--pattern", "timeouts", "--body-key", "order"]));
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn what_cannot_be_taken_stays_and_is_named() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    add(&redis, "delay:order", "inf", b"never");
    add(&redis, "delay:order", FAR, &vec![b'x'; (1 << 20) + 1]);
    add(&redis, "delay:order", FAR, &vec![b'y'; 9 << 20]);
    add(&redis, "delay:order", FAR * 4, b"in a hundred years");
    add(&redis, "delay:order", FAR, b"fine");
    add(&redis, &format!("delay:{}", "k".repeat(300)), FAR, b"no topic has so long a name");
    let url = redis.url();
    let args = import(&url, &["--pattern", "delay:*", "-o", "json"]);
    // Without a move the same is said.
    let dry = server.run(&[&args[..], &["--dry-run"]].concat());
    let run = server.run(&args);
    for (run, accepted) in [(&dry, 0), (&run, 1)] {
        assert_eq!(run.code, 1, "{}", run.words);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        let counts = ["messages", "accepted", "left"].map(|name| report[name].as_u64().unwrap());
        assert_eq!(counts, [1, accepted, 5], "each is counted once: {}", run.words);
        let set = report["keys"].as_array().unwrap().iter().find(|set| set["key"] == "delay:order").unwrap();
        assert_eq!((&set["messages"], &set["left"]), (&json!(1), &json!(4)), "{report}");
        let words = ["its score, inf", "[body_too_large]", "[too_far]", "name one with --topic"];
        assert!(words.iter().all(|words| run.words.contains(words)), "{}", run.words);
    }
    assert_eq!(card(&redis, "delay:order"), 4);
    add(&redis, "delay:mail", FAR, b"fine");
    let unknown = server.run(&import(&url, &["--pattern", "delay:mail", "--sink", "nowhere"]));
    assert!(unknown.code == 1 && unknown.words.contains("unknown_sink"), "{unknown:?}");
    assert_eq!(card(&redis, "delay:mail"), 1);
}

#[test]
fn servers_that_are_away_are_told_apart_by_words_and_not_by_secrets() {
    if !server::installed() {
        return;
    }
    let (server, redis) = (Server::start(), Redis::single());
    add(&redis, "delay:order", FAR, b"fine");
    let url = redis.url();
    let args = import(&url, &["--pattern", "delay:*", "--patience", "0s"]);
    let run = super::run(super::duly().env("DULY_URL", "http://127.0.0.1:1").args(&args), b"");
    assert!(run.code == 5 && run.words.contains("Run it again"), "{run:?}");
    assert_eq!(card(&redis, "delay:order"), 1);
    let url = format!("redis://:geheim@127.0.0.1:{}", redis.port());
    redis.kill();
    let run = server.run(&import(&url, &["--pattern", "*"]));
    assert!(run.code == 5 && !run.words.contains("geheim"), "{run:?}");
    let run = server.run(&import("localhost", &["--pattern", "*"]));
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn every_master_of_a_cluster_is_asked() {
    if !server::installed() {
        return;
    }
    let (server, cluster) = (Server::start(), Cluster::of_three());
    for n in 0..60 {
        let key = format!("delay:{n}");
        let owner = &cluster.nodes()[cluster.owner(cluster.slot(&key))];
        add(owner, &key, FAR, format!("order:{n}").as_bytes());
        let body = format!("order:{n}");
        let owner = &cluster.nodes()[cluster.owner(cluster.slot(&body))];
        owner.run::<()>(&["SET", &body, &n.to_string()]);
    }
    let url = cluster.url();
    let args = import(&url, &["--pattern", "delay:*", "--topic", "order", "--body-key", "{member}"]);
    let report: Value = server.json(&args);
    assert_eq!((&report["accepted"], &report["removed"]), (&json!(60), &json!(60)), "{report}");
    let mut bodies: Vec<u32> =
        pending(&server).into_iter().map(|message| message.content.body.unwrap().parse().unwrap()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..60).collect::<Vec<_>>());
    for node in cluster.nodes() {
        assert_eq!(node.run::<Vec<String>>(&["KEYS", "delay:*"]), [""; 0]);
    }
}

#[test]
fn sentinels_name_the_master_to_take_from() {
    if !server::installed() {
        return;
    }
    let (server, sentinels) = (Server::start(), Sentinels::start());
    add(&sentinels.pair()[sentinels.master()], "delay:order", FAR, b"fine");
    let url = sentinels.url();
    let report: Value = server.json(&import(&url, &["--pattern", "delay:*"]));
    assert_eq!((&report["accepted"], &report["removed"]), (&json!(1), &json!(1)), "{report}");
}
