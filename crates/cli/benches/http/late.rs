//! Lateness seen by a receiver over HTTP, beside a receiver inside the process.

use std::{net::SocketAddr, time::Duration};

use duly::{Clock, Duly, Message, Receive, SystemClock, seconds};
use testkit::bench::{
    process::now,
    report::{Report, quantile},
};
use tokio::task::JoinSet;

use crate::{
    load::{Connection, post},
    servers::Server,
};

/// Messages per second.
const RATE: u64 = 2_000;
const RECEIVERS: usize = 4;

pub(crate) async fn run(report: &mut Report, span: Duration) {
    let inside = core(span).await;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::duly(folder.path());
    let outside = http(server.addr, span).await;
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("lateness {name} over HTTP receive, {RATE}/s");
        report.beside(name, quantile(&outside, part), "ms", quantile(&inside, part));
    }
}

/// Whole milliseconds within the next two seconds, evenly spread: a hundred messages every fifty milliseconds.
fn dues(clock: &SystemClock) -> Vec<u64> {
    let base = clock.now().wall().as_millis() + 1_000;
    (0..RATE / 20).map(|n| base + n * 17 % 1_000).collect()
}

async fn core(span: Duration) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let duly = Duly::open(folder.path()).await.unwrap();
    let mut receivers = JoinSet::new();
    for _ in 0..RECEIVERS {
        let duly = duly.clone();
        receivers.spawn(async move {
            let (clock, mut late) = (SystemClock::new().unwrap(), Vec::new());
            loop {
                let want = Receive { max: 100, wait: seconds(3), ..Receive::default() };
                let received = duly.receive("late", want).await.unwrap();
                let at = clock.now().wall_micros();
                if received.is_empty() {
                    return late;
                }
                late.extend(
                    received.iter().map(|r| (at as f64 - r.message.due.as_millis() as f64 * 1e3) / 1e3),
                );
                let receipts: Vec<_> = received.iter().map(|r| r.receipt.as_str()).collect();
                duly.ack(&receipts).await.unwrap();
            }
        });
    }
    let (clock, begin) = (SystemClock::new().unwrap(), now());
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while begin.elapsed() < span {
        ticks.tick().await;
        let message = |due| Message::to("late").at(duly::Timestamp::from_millis(due)).text("x".repeat(100));
        duly.send_batch(dues(&clock).into_iter().map(message)).await;
    }
    let mut late = receivers.join_all().await.concat();
    duly.shutdown().await.unwrap();
    late.sort_unstable_by(f64::total_cmp);
    late
}

async fn http(addr: SocketAddr, span: Duration) -> Vec<f64> {
    let mut receivers = JoinSet::new();
    for _ in 0..RECEIVERS {
        receivers.spawn(async move {
            let (clock, mut late) = (SystemClock::new().unwrap(), Vec::new());
            let mut connection = Connection::open(addr).await;
            let ask = post("/v1/queues/late/receive", "{\"max\":100,\"wait\":\"3s\"}");
            loop {
                let answer = connection.call(&ask).await;
                let at = clock.now().wall_micros();
                let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
                let messages = answer["messages"].as_array().unwrap();
                if messages.is_empty() {
                    return late;
                }
                late.extend(
                    messages.iter().map(|m| (at as f64 - m["deliver_at_ms"].as_f64().unwrap() * 1e3) / 1e3),
                );
                let receipts: Vec<_> = messages.iter().map(|m| &m["receipt"]).collect();
                let body = serde_json::json!({"receipts": receipts}).to_string();
                connection.call(&post("/v1/queues/late/ack", &body)).await;
            }
        });
    }
    let (clock, begin) = (SystemClock::new().unwrap(), now());
    let mut connection = Connection::open(addr).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let body = "x".repeat(100);
    while begin.elapsed() < span {
        ticks.tick().await;
        let line = |due| format!("{{\"topic\":\"late\",\"body\":\"{body}\",\"deliver_at\":{due}}}\n");
        let lines: String = dues(&clock).into_iter().map(line).collect();
        connection.call(&post("/v1/messages/batch", &lines)).await;
    }
    let mut late = receivers.join_all().await.concat();
    late.sort_unstable_by(f64::total_cmp);
    late
}
