//! The server beside what the machine can do: `cargo xtask bench http`.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod late;
mod load;
mod servers;

use std::time::Duration;

use clap::Parser;
use duly_core::{Clock, MessageId, Store, StoredMessage, store::Insert};
use duly_stores::embedded::{EmbeddedStore, Options};
use testkit::bench::{
    arguments::{Cases, Output},
    process::{self, now},
    report::{Report, quantile},
};

use crate::{
    load::{Connection, post},
    servers::Server,
};

/// The same message everywhere: a topic, a hundred bytes, a minute.
fn message() -> String {
    format!("{{\"topic\":\"bench\",\"body\":\"{}\",\"delay\":\"1h\"}}", "x".repeat(100))
}

#[derive(Parser)]
#[command(after_help = "Cases of --only: single, batch, receive, late, idle")]
struct Arguments {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[command(flatten)]
    cases: Cases,
    #[command(flatten)]
    output: Output,
    #[arg(long, hide = true)]
    bare: Option<String>,
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(addr) = &arguments.bare {
        return runtime.block_on(servers::bare(addr));
    }
    runtime.block_on(run(&arguments));
}

async fn run(arguments: &Arguments) {
    let mut report = arguments.output.report();
    let wanted = |case: &str| arguments.cases.wants(case);
    let span = Duration::from_secs(arguments.seconds);
    report.alone("load of the machine before", process::load(), "");
    let mut singles = 0.0;
    if wanted("single") || wanted("receive") {
        singles = single(&mut report, span).await;
    }
    if wanted("batch") {
        batch(&mut report, span).await;
    }
    if wanted("receive") {
        receive(&mut report, singles).await;
    }
    if wanted("late") {
        late::run(&mut report, span).await;
    }
    if wanted("idle") {
        idle(&mut report, span).await;
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}

async fn single(report: &mut Report, span: Duration) -> f64 {
    let mut syncs: Vec<_> = process::raw_appends(4096, 500).iter().map(Duration::as_secs_f64).collect();
    syncs.sort_unstable_by(f64::total_cmp);
    let disk = 64.0 / quantile(&syncs, 0.5);
    let request = post("/v1/messages", &message());
    let bare = Server::bare();
    let reference = load::run(bare.addr, 64, span, request.clone()).await.per_second;
    drop(bare);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::duly(folder.path());
    let measured = load::run(server.addr, 64, span, request).await;
    report.alone("a bare hyper handler, 64 connections", reference, "/s");
    report.alone("64 / median fdatasync", disk, "/s");
    report.beside(
        "POST /v1/messages, 64 connections, fsync on",
        measured.per_second,
        "/s",
        reference.min(disk),
    );
    report.alone("  accept latency p50", quantile(&measured.micros, 0.5) / 1e3, "ms");
    report.alone("  accept latency p99", quantile(&measured.micros, 0.99) / 1e3, "ms");
    measured.per_second
}

async fn batch(report: &mut Report, span: Duration) {
    let reference = store_rate(span).await;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::duly(folder.path());
    let lines = (message() + "\n").repeat(1_000);
    let measured = load::run(server.addr, 4, span, post("/v1/messages/batch", &lines)).await;
    report.beside("NDJSON batches of 1,000, 4 connections", measured.per_second * 1_000.0, "/s", reference);
}

/// The store's own rate: batches of 1,024, two callers.
async fn store_rate(span: Duration) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(duly::SystemClock::new().unwrap());
    let store = EmbeddedStore::open(folder.path(), Options::default(), clock.now()).await.unwrap();
    let store = std::sync::Arc::new(store);
    let begin = now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..2_u128 {
        let (store, clock) = (store.clone(), clock.clone());
        callers.spawn(async move {
            let mut sent = 0_u64;
            while begin.elapsed() < span {
                let now = clock.now();
                let due = now.wall().saturating_add(Duration::from_secs(3600));
                let insert = |n: u64| {
                    let id = MessageId::generate(now.wall(), caller << 64 | u128::from(sent + n));
                    let mut message =
                        StoredMessage::new(id, duly::SinkName::queue(), "bench".parse().unwrap(), due);
                    message.body = duly::Body::text("x".repeat(100));
                    Insert { id_is_generated: true, ..Insert::new(message) }
                };
                store.insert(now, (0..1_024).map(insert).collect()).await.unwrap();
                sent += 1_024;
            }
            sent
        });
    }
    let sent: u64 = callers.join_all().await.into_iter().sum();
    sent as f64 / begin.elapsed().as_secs_f64()
}

/// Receive and ack in batches of a hundred, beside the rate of single inserts.
async fn receive(report: &mut Report, singles: f64) {
    const COUNT: usize = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::duly(folder.path());
    let lines = (message().replace("1h", "0s") + "\n").repeat(1_000);
    let mut connection = Connection::open(server.addr).await;
    for _ in 0..COUNT / 1_000 {
        connection.call(&post("/v1/messages/batch", &lines)).await;
    }
    let begin = now();
    let mut receivers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let addr = server.addr;
        receivers.spawn(async move {
            let mut connection = Connection::open(addr).await;
            let ask = post("/v1/queues/bench/receive", "{\"max\":100}");
            let mut taken = 0;
            loop {
                let answer: serde_json::Value = serde_json::from_slice(connection.call(&ask).await).unwrap();
                let messages = answer["messages"].as_array().unwrap();
                if messages.is_empty() {
                    return taken;
                }
                let receipts: Vec<_> = messages.iter().map(|message| &message["receipt"]).collect();
                let body = serde_json::json!({"receipts": receipts}).to_string();
                taken += messages.len();
                connection.call(&post("/v1/queues/bench/ack", &body)).await;
            }
        });
    }
    let taken: usize = receivers.join_all().await.into_iter().sum();
    assert_eq!(taken, COUNT);
    let rate = taken as f64 / begin.elapsed().as_secs_f64();
    report.beside("receive + ack, batches of 100, 8 connections", rate, "/s", singles);
}

/// Memory at rest, and what 5,000 idle connections and a slow client cost others.
async fn idle(report: &mut Report, span: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::duly(folder.path());
    calm().await;
    report.beside("memory of an idle server", server.memory_mb(), "MB", 50.0);
    let request = post("/v1/messages", &message());
    let alone = load::paced(server.addr, 10, 500, span, &request).await;
    let mut idle = Vec::new();
    for _ in 0..5_000 {
        idle.push(tokio::net::TcpStream::connect(server.addr).await.unwrap());
    }
    // Taking them is over before it is measured what keeping them costs.
    calm().await;
    let addr = server.addr;
    let slow = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        for byte in post("/v1/messages", &message()) {
            ticks.tick().await;
            stream.write_all(&[byte]).await.unwrap();
        }
    });
    let beside = load::paced(server.addr, 10, 500, span, &request).await;
    slow.abort();
    report.alone("memory with 5,000 idle connections", server.memory_mb(), "MB");
    drop(idle);
    calm().await;
    // The same once more without them: how far two equal runs lie apart is the noise.
    let again = load::paced(server.addr, 10, 500, span, &request).await;
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let reference = quantile(&alone, part) / 1e3;
        let with = format!("accept latency {name} beside 5,000 idle and a slow one");
        report.beside(with, quantile(&beside, part) / 1e3, "ms", reference);
        report.beside(format!("  {name} again without them"), quantile(&again, part) / 1e3, "ms", reference);
    }
}

/// Lets what was begun come to rest.
async fn calm() {
    tokio::time::timeout(Duration::from_secs(2), std::future::pending::<()>()).await.unwrap_err();
}
