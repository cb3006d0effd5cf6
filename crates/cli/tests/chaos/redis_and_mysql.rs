//! Nodes on MySQL with an index in Redis: whichever half breaks, the truth is in MySQL, and the index comes back.

use std::{fs, time::Duration};

use http::Method;
use serde_json::json;
use testkit::servers::redis::{Options, Redis};

use crate::{
    bed::Bed,
    database::{Database, Make},
    ledger::{Accepted, SINKS},
    node::{IN_FLIGHT, LEASE},
    targets::STREAMS,
};

/// Further ahead than what the index is told at once.
const LATER: Duration = Duration::from_millis(10_500);

struct RedisAndMysql {
    bed: Bed,
    index: Redis,
    truth: Database,
}

impl RedisAndMysql {
    /// Three nodes under load on both; nothing if one of them is not installed.
    async fn start(case: &'static str) -> Option<Self> {
        if !Make::Mysql.installed() {
            return None;
        }
        let (index, truth) = (Redis::with(Options::default()), Make::Mysql.start());
        let bed = Bed::beside(case, |_, node, _| {
            node.store = format!(
                "kind = \"redis+mysql\"\nredis = \"{}\"\nmysql = \"{}\"",
                index.url(),
                truth.url(truth.port())
            );
        })
        .await;
        let servers = Self { bed, index, truth };
        servers.until_index_is_used().await;
        servers.send_for_later().await;
        Some(servers)
    }

    /// Messages that the index gets from MySQL, and not from the node that took them.
    async fn send_for_later(&self) {
        let Bed { nodes, ledger, time, .. } = &self.bed;
        let (asked_ms, mut items) = (time.wall_ms(), Vec::new());
        for number in 0..60_u64 {
            let (id, delay_ms) = (format!("later-{number}"), LATER.as_millis() as u64 + number * 20);
            let (sink, topic) = (SINKS[number as usize % 3], STREAMS[number as usize % STREAMS.len()]);
            let due_ms = asked_ms + delay_ms;
            ledger.ask(&id, sink, asked_ms, delay_ms);
            items.push(json!({"id": id, "sink": sink, "topic": topic, "body": format!("body of {id}"), "deliver_at": due_ms}));
            let accepted = Some(Accepted { at_ms: asked_ms, due_ms });
            ledger.change(&id, |entry| entry.accepted = accepted);
        }
        let (status, answer) =
            nodes[1].call(Method::POST, "/v1/messages/batch", json!(items).to_string()).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    }

    async fn until_index_is_used(&self) {
        for node in self.bed.nodes.iter() {
            self.bed
                .until(&format!("{} finds messages by the index", node.name), async || {
                    node.metric("duly_index_used").await == Some(1.0)
                })
                .await;
        }
    }

    /// What all nodes export under this name, together.
    async fn sum(&self, metric: &str) -> f64 {
        let mut sum = 0.0;
        for node in self.bed.nodes.iter() {
            sum += node.metric(metric).await.unwrap_or_else(|| panic!("{metric} of {}", node.name));
        }
        sum
    }

    /// The faults are over: the index is used again, and all is as it should be.
    async fn check(self, twice_max: usize) {
        self.until_index_is_used().await;
        let [rebuilt, repaired] =
            [self.sum("duly_index_rebuilds_total").await, self.sum("duly_index_repairs_total").await];
        println!("index built again {rebuilt} times, {repaired} entries mended");
        assert!(rebuilt >= 1.0, "what was lost was built again, and that is told");
        self.bed.quiet_beside().await.check(twice_max).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_flushed_over_and_over_loses_nothing_and_repeats_nothing() {
    const FLUSHES: u64 = 8;
    let Some(mut servers) = RedisAndMysql::start("FLUSHALL beside MySQL").await else { return };
    for flush in 0..FLUSHES {
        servers.bed.accept_more(30).await;
        let wait = servers.bed.draw(800);
        servers.bed.time.pass_ms(wait).await;
        // Sometimes what is lost is only a part.
        if flush % 3 == 2 {
            let keys: Vec<String> = servers.index.run(&["KEYS", "*:index"]);
            for key in keys.iter().take(4) {
                servers.index.run::<()>(&["DEL", key]);
            }
        } else {
            servers.index.run::<()>(&["FLUSHALL"]);
        }
    }
    servers.check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_killed_with_and_without_its_file_loses_nothing_and_repeats_nothing() {
    let Some(servers) = RedisAndMysql::start("kill -9 of Redis beside MySQL").await else { return };
    for (away_ms, with_file) in [(0, true), (500, false), (1500, true), (0, false)] {
        servers.bed.accept_more(60).await;
        servers.index.kill();
        servers.bed.time.pass_ms(away_ms).await;
        if !with_file {
            fs::remove_dir_all(servers.index.folder().join("appendonlydir")).unwrap();
        }
        servers.index.start();
    }
    servers.check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_index_sleeps_messages_are_found_in_mysql() {
    let Some(servers) = RedisAndMysql::start("SIGSTOP of Redis beside MySQL").await else { return };
    for span in [Duration::from_millis(500), Duration::from_secs(4)] {
        servers.bed.accept_more(60).await;
        servers.index.pause();
        let begin = servers.bed.time.wall_ms();
        if span > LEASE {
            for node in servers.bed.nodes.iter() {
                let what = format!("{} says that it does without the index", node.name);
                servers.bed.until(&what, async || node.metric("duly_index_used").await == Some(0.0)).await;
            }
            // Accepting goes on.
            servers.bed.accept_more(60).await;
        }
        let past = Duration::from_millis(servers.bed.time.wall_ms() - begin);
        servers.bed.time.pass(span.saturating_sub(past)).await;
        servers.index.cont();
    }
    servers.check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_mysql_killed_while_the_index_is_flushed_lose_nothing() {
    const ROUNDS: usize = 4;
    let Some(mut servers) =
        RedisAndMysql::start("kill -9 of nodes and of MariaDB with its index flushed").await
    else {
        return;
    };
    for round in 0..ROUNDS {
        servers.bed.accept_more(60).await;
        let victim = servers.bed.draw(3) as usize;
        servers.bed.nodes[victim].kill();
        if round % 2 == 0 {
            servers.truth.kill();
            servers.index.run::<()>(&["FLUSHALL"]);
            servers.truth.start();
        }
        let away = [0, LEASE.as_millis() as u64 + 500][servers.bed.draw(2) as usize];
        servers.bed.time.pass_ms(away).await;
        servers.bed.nodes[victim].start();
        servers.index.run::<()>(&["FLUSHALL"]);
    }
    servers.bed.wait_until_ready().await;
    servers.check(ROUNDS * 3 * IN_FLIGHT).await;
}
