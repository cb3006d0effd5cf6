//! One message to each of 10,000 origins, and the memory of this process.

use duly::Message;
use testkit::{
    bench::{process, report::Report},
    http::HttpServer,
};

use crate::{AHEAD, Late, run, start};

const ORIGINS: usize = 10_000;

/// How memory grew, and how many connections were open at once.
struct Round {
    grown: f64,
    open_max: usize,
    came: usize,
}

/// A new Duly, a new server, and a message to each of these hosts.
async fn round(host: impl Fn(usize) -> String) -> Round {
    let late = Late::new();
    let at_server = late.clone();
    let server = HttpServer::start_everywhere(move |request| at_server.came(request));
    let port = server.addr().port();
    let duly = start("allow_urls = ['http://*:*']").await;
    let due = duly.now().saturating_add(AHEAD);
    let before = process::memory_mb();
    let to = |n: usize| Message::to_sink("hooks", &format!("http://{}:{port}/hook", host(n)));
    let all = (0..ORIGINS).map(|n| to(n).at(due).text("x")).collect();
    let came = run(&duly, &late, all, ORIGINS).await.len();
    let round = Round { grown: process::memory_mb() - before, open_max: server.open_max(), came };
    duly.shutdown().await.unwrap();
    round
}

/// The server keeps every request and the store every message, so what counts is the difference to as many to one origin.
pub(crate) async fn origins(report: &mut Report) {
    let one = |_: usize| "127.0.0.1".to_owned();
    let each = |n: usize| format!("127.1.{}.{}", n / 250, n % 250 + 1);
    // The first is for what a process keeps once it has had it.
    round(one).await;
    let (one, each) = (round(one).await, round(each).await);
    let name = format!("{} messages to as many origins, and to one", each.came);
    report.beside(format!("{name}: memory"), each.grown, "MB", one.grown);
    report.beside("    connections open at once", each.open_max as f64, "", one.open_max as f64);
    report.alone("    load of the machine", process::load(), "");
}
