//! Every setting at its edges: what is accepted delivers, what would not is refused by its path.

use std::fs;

use duly_server::{
    config::{Config, Flags, Problems, Sources},
    serve,
};
use http::Method;
use serde_json::json;
use testkit::servers::{
    mysql::{self, Mysql},
    postgres::{self, Postgres},
    redis::{self, Redis},
};

use crate::{
    bed::{SOON, call},
    target::Target,
};

/// A setting: values that are refused, its least and its most. What is written for `least` and `most` is left out if empty.
struct Edge(&'static str, &'static [&'static str], &'static str, &'static str);

/// Numbers and durations. Connections, tries and timeouts are not at their very least: on a busy machine they would try the
/// test, and not Duly.
const EDGES: &[Edge] = &[
    Edge("store.lease", &["0", "999", "\"12h1ms\"", "9223372036854775807"], "\"1s\"", "\"12h\""),
    Edge("store.retention", &["\"3654d\"", "-1"], "\"0s\"", "\"3653d\""),
    Edge("store.retention_max", &["-1", "100000001"], "0", "100000000"),
    Edge("limits.body", &["0", "\"17MiB\""], "1", "\"16MiB\""),
    Edge("limits.batch", &["0", "1000001"], "1", "1000000"),
    Edge("limits.properties", &["-1", "1025"], "0", "1024"),
    Edge("limits.delay", &["0", "\"36526d\""], "\"1s\"", "\"36525d\""),
    Edge("limits.pending", &["0", "100000000001"], "1", "100000000000"),
    Edge("limits.connections", &["0", "1000001"], "", "1000000"),
    Edge("limits.header_timeout", &["0", "99", "\"61m\""], "", "\"1h\""),
    Edge("limits.body_timeout", &["0", "99", "\"61m\""], "", "\"1h\""),
    Edge("sweep.initial", &["0", "\"61s\""], "\"1ms\"", "\"1m\""),
    Edge("sweep.min", &["0", "\"61s\"", "\"501ms\""], "\"1ms\"", "\"1m\""),
    Edge("sweep.max", &["0", "\"61s\"", "\"3s\""], "\"1ms\"", "\"1m\""),
    Edge("sweep.idle_max", &["0", "\"61s\""], "\"1ms\"", "\"1m\""),
    Edge("cluster.heartbeat", &["0", "99", "\"61s\""], "\"100ms\"", "\"1m\""),
    Edge("retry.attempts", &["0", "1000001"], "1", "1000000"),
    Edge("retry.min", &["\"25h\"", "\"6m\""], "\"0s\"", "\"1d\""),
    Edge("retry.max", &["\"25h\""], "\"0s\"", "\"1d\""),
    Edge("handlers.again", &["\"25h\""], "\"0s\"", "\"1d\""),
    Edge("handlers.failed", &["\"25h\""], "\"0s\"", "\"1d\""),
    Edge("handlers.max", &["\"25h\""], "\"1s\"", "\"1d\""),
    Edge("handlers.attempts", &["0", "1000001"], "1", "1000000"),
    Edge("alerts.overdue", &["0", "\"367d\""], "\"1ms\"", "\"366d\""),
    Edge("alerts.queue_length", &["0", "-1"], "1", "9223372036854775807"),
    Edge("alerts.lateness_p99", &["0", "\"367d\""], "\"1ms\"", "\"366d\""),
    Edge("alerts.failure_rate", &["-0.1", "1.1", "nan", "inf"], "0", "1"),
    Edge("alerts.dead_letters", &["-1"], "0", "9223372036854775807"),
    Edge("sinks.hook.in_flight", &["0", "10001"], "1", "10000"),
    Edge("sinks.hook.concurrency", &["0", "4097"], "1", "4096"),
    Edge("sinks.hook.batch", &["0", "2049"], "1", "2048"),
    Edge("sinks.hook.rate", &["0", "10000001"], "1", "10000000"),
    Edge("sinks.hook.timeout", &["0", "\"10s\"", "\"13h\""], "", "\"11h\""),
    Edge("sinks.hook.parallel", &["0", "-1", "1000000000"], "1", ""),
    Edge("sinks.hook.per_origin", &["0", "-1", "1000000000"], "1", ""),
    Edge("sinks.hook.request_timeout", &["0", "\"2d\""], "\"800ms\"", ""),
    Edge("sinks.hook.retry.attempts", &["0", "1000001"], "3", "1000000"),
];

fn load(settings: &str, target: &Target) -> Result<(Config, tempfile::TempDir), Problems> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duly.toml");
    let data = folder.path().join("data");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {data:?}\nsinks.hook.kind = \"webhook\"\nsinks.hook.url = {:?}\n\
         sinks.hook.allow_private = true\n{settings}",
        target.url()
    );
    fs::write(&file, text).unwrap();
    let sources = Sources { file: Some(file), environment: Vec::new(), flags: Flags::default() };
    Config::load(&sources).map(|config| (config, folder))
}

/// Starts a server with these settings, and sees a message delivered to the sink, and one received: twice, with sweeps between.
async fn delivers(settings: &str) {
    let target = Target::new().await;
    let (config, _folder) =
        load(settings, &target).unwrap_or_else(|problems| panic!("{settings}\n{problems}"));
    let running = serve::start(config).await.unwrap_or_else(|error| panic!("{settings}\n{error}"));
    let post = async |path: &str, body: serde_json::Value| {
        // The one that may be pending has been delivered, and this may not be recorded yet.
        loop {
            let answer = call(running.addr(), Method::POST, path, body.to_string(), &[]).await;
            if answer.status != 429 {
                assert!(answer.status.is_success(), "{settings}\n{answer:?}");
                return answer.json();
            }
        }
    };
    for round in 0..2 {
        let pushed = json!({"sink": "hook", "topic": "t", "body": "x", "delay": "20ms"});
        post("/v1/messages", pushed).await;
        let arrived = tokio::time::timeout(SOON, target.next()).await;
        assert!(arrived.is_ok(), "{settings}\nround {round}: not delivered");
        post("/v1/messages", json!({"topic": "order", "body": "x", "delay": "20ms"})).await;
        let received = post("/v1/queues/order/receive", json!({"wait": "10s"})).await;
        let receipt = &received["messages"][0]["receipt"];
        let acked = post("/v1/queues/order/ack", json!({"receipts": [receipt]})).await;
        assert_eq!(acked["results"][0]["outcome"], "done", "{settings}\nround {round}: {received}");
        let ready = call(running.addr(), Method::GET, "/readyz", "", &[]).await;
        assert_eq!(ready.status, 200, "{settings}\nround {round}: {ready:?}");
    }
    running.stop().await.unwrap();
}

fn written(pick: impl Fn(&Edge) -> &'static str) -> String {
    let settings = EDGES.iter().filter(|edge| !pick(edge).is_empty());
    settings.map(|edge| format!("{} = {}\n", edge.0, pick(edge))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_an_edge_is_refused_by_its_path() {
    let target = Target::new().await;
    for Edge(path, beyond, ..) in EDGES {
        for value in *beyond {
            let Err(problems) = load(&format!("{path} = {value}\n"), &target) else {
                panic!("{path} = {value} is accepted");
            };
            let reported: Vec<_> = problems.problems.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(reported, [*path], "{path} = {value}: {problems}");
        }
    }
    // Each within its own range, and together not.
    for (settings, path, words) in [
        (
            "sweep.min = \"3s\"\nsweep.max = \"3s\"\nsweep.idle_max = \"3s\"",
            "sweep.min",
            "longer than cluster.heartbeat, which is 2s",
        ),
        (
            "cluster.heartbeat = \"100ms\"\nsweep.min = \"101ms\"",
            "sweep.min",
            "longer than cluster.heartbeat, which is 100ms",
        ),
        // What is as usual is not at fault.
        ("sweep.max = \"1ms\"", "sweep.max", "shorter than min"),
        ("retry.max = \"1ms\"", "retry.max", "shorter than min"),
        ("store.lease = \"1s\"", "store.lease", "make it longer"),
        (
            "store.lease = \"1s\"\nsinks.hook.timeout = \"1s\"",
            "sinks.hook.timeout",
            "shorter than store.lease",
        ),
        (
            "sinks.hook.request_timeout = \"9s\"\nsinks.hook.timeout = \"9s\"",
            "sinks.hook.timeout",
            "longer than one request",
        ),
        (
            "sinks.hook.retry.min = \"2s\"\nsinks.hook.retry.max = \"1s\"",
            "sinks.hook.retry.min",
            "longer than max",
        ),
    ] {
        let Err(problems) = load(settings, &target) else { panic!("{settings} is accepted") };
        let [problem] = problems.problems.as_slice() else { panic!("{problems}") };
        assert_eq!(problem.path, path, "{problems}");
        assert!(problem.detail.contains(words), "{problems}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_every_setting_at_its_least_delivers() {
    delivers(&written(|edge| edge.2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_every_setting_at_its_most_delivers() {
    delivers(&written(|edge| edge.3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_slow_sweeps_and_quick_heartbeats_or_the_reverse_delivers() {
    for settings in [
        "cluster.heartbeat = \"100ms\"\nsweep.min = \"100ms\"\nsweep.max = \"1m\"\nsweep.idle_max = \"1m\"\nsweep.initial = \"1m\"\n",
        "cluster.heartbeat = \"1m\"\nsweep.min = \"1m\"\nsweep.max = \"1m\"\nsweep.idle_max = \"1m\"\nstore.lease = \"1s\"\nsinks.hook.request_timeout = \"800ms\"\n",
    ] {
        delivers(settings).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_behind_a_network_deliver_with_their_settings_at_their_edges() {
    let mut stores = Vec::new();
    let redis = redis::installed().then(Redis::single);
    if let Some(redis) = &redis {
        stores.push(format!("store.kind = \"redis\"\nstore.redis = {:?}\nstore.shards = 256\n", redis.url()));
    }
    let mysql = mysql::installed().then(Mysql::single);
    let postgres = postgres::installed().then(Postgres::single);
    let databases = [
        ("mysql", mysql.as_ref().map(Mysql::fresh_database)),
        ("postgres", postgres.as_ref().map(Postgres::fresh_database)),
    ];
    for (kind, url) in databases {
        let url = url.map(|url| {
            format!(
                "store.kind = {kind:?}\nstore.{kind} = {url:?}\nstore.connections = 1\nstore.shards = 1\n"
            )
        });
        stores.extend(url);
    }
    for store in stores {
        // A heartbeat far longer than the lease: the store asks for what it needs.
        delivers(&format!("{store}store.lease = \"1s\"\nsinks.hook.request_timeout = \"800ms\"\ncluster.heartbeat = \"1m\"\nsweep.min = \"1m\"\nsweep.max = \"1m\"\nsweep.idle_max = \"1m\"\n")).await;
    }
}
