//! The same by Duly: Redis store, delivery in the store into the streams of the same Redis.

use std::time::Duration;

use duly::Clock;
use duly_core::Timestamp;
use testkit::{
    bench::{process, report::Report},
    servers::redis::Redis,
};

use crate::{
    Arguments,
    bed::{Cost, Node, SINK, STREAM, Watch, insert, lateness, message, node, pause, server},
};

fn moved(redis: &Redis) -> usize {
    redis.run(&["XLEN", STREAM])
}

/// Nodes that are paused while the backlog comes about, and then let go.
async fn drain(arguments: &Arguments, count: u64) -> (Cost, f64) {
    let redis = server();
    let mut all: Vec<Node> = Vec::new();
    for instance in 1..=count {
        all.push(node(&redis, instance).await);
    }
    // All nodes hear of it, and share the shards out.
    for node in &all {
        node.duly.pause_sink(SINK).await.unwrap();
    }
    let due = Timestamp::from_millis(all[0].clock.now().wall().as_millis() - 1000);
    insert(&all[0], (0..arguments.backlog).map(|n| message(n, (SINK, STREAM), due, arguments.body))).await;
    pause(Duration::from_secs(12)).await;
    assert_eq!(moved(&redis), 0);
    let (watch, own) = (Watch::start(&redis), process::cpu_seconds());
    for node in &all {
        node.duly.resume_sink(SINK).await.unwrap();
    }
    while moved(&redis) < arguments.backlog {
        pause(Duration::from_millis(2)).await;
    }
    let share = (process::cpu_seconds() - own) / watch.seconds();
    let cost = watch.end(arguments.backlog);
    for node in all {
        node.duly.shutdown().await.unwrap();
    }
    (cost, share)
}

pub(crate) async fn backlog(report: &mut Report, arguments: &Arguments, [plain, bare, like]: [Cost; 3]) {
    let (cost, own) = drain(arguments, 1).await;
    report.beside("(c) Duly, backlog, beside (a); 10 wanted", cost.per_second, "msg/s", plain.per_second);
    report.beside("(c) Duly, backlog, beside (b); 0.5 wanted", cost.per_second, "msg/s", bare.per_second);
    report.beside("(c) Duly, backlog, beside (b')", cost.per_second, "msg/s", like.per_second);
    let (each, bare_each) = (cost.redis_share / cost.per_second, bare.redis_share / bare.per_second);
    report.beside("    Redis's processor per message, beside (b)", each * 1e6, "us", bare_each * 1e6);
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    report.alone("    Duly's own processor", own * 100.0, "%");
}

pub(crate) async fn nodes(report: &mut Report, arguments: &Arguments, count: u64, one: Option<f64>) -> f64 {
    let (cost, own) = drain(arguments, count).await;
    let name = format!("(d) Duly, {count} node(s), backlog");
    match one {
        Some(one) => report.beside(name, cost.per_second, "msg/s", one),
        None => report.alone(name, cost.per_second, "msg/s"),
    }
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    report.alone("    Duly's own processor", own * 100.0, "%");
    cost.per_second
}

pub(crate) async fn late(report: &mut Report, arguments: &Arguments, plain: (f64, f64)) {
    let redis = server();
    let node = node(&redis, 1).await;
    pause(Duration::from_secs(2)).await;
    let count = (arguments.rate * arguments.seconds) as usize;
    let first = node.clock.now().wall().as_millis() + 1000;
    let due = |n: usize| Timestamp::from_millis(first + n as u64 * 1000 / arguments.rate);
    let watch = Watch::start(&redis);
    insert(&node, (0..count).map(|n| message(n, (SINK, STREAM), due(n), arguments.body))).await;
    while moved(&redis) < count {
        pause(Duration::from_millis(50)).await;
    }
    let cost = watch.end(count);
    let (p50, p99) = lateness(&redis);
    report.beside(format!("(c) Duly, {}/s, lateness p50, beside (a)", arguments.rate), p50, "ms", plain.0);
    report.beside("    p99; 0.02 wanted", p99, "ms", plain.1);
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    node.duly.shutdown().await.unwrap();
}
