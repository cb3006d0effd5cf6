//! The console before a great deal of messages: `cargo xtask bench console`.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

#[path = "../../tests/console/browser.rs"]
#[expect(dead_code, reason = "the tests do more with a browser than is measured")]
mod browser;

use std::time::Duration;

use browser::{Browser, Window};
use clap::Parser;
use duly::Message;
use duly_core::schedule::Random;
use duly_server::{
    config::{Config, StoreSetup},
    serve,
};
use serde_json::json;
use testkit::{
    bench::{
        arguments::Output,
        process::{self, now},
        report::Report,
    },
    servers::chromium,
};

/// Messages sent at once.
const BATCH: u64 = 10_000;
/// What comes due is spread over so many seconds, as in the widest view.
const MONTH_SECS: u64 = 30 * 24 * 3600;
/// How long each screen is watched while messages come and go.
const WATCHED: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Arguments {
    /// Messages that wait
    #[arg(long, default_value_t = 10_000_000)]
    pending: u64,
    #[command(flatten)]
    output: Output,
}

fn main() {
    let arguments = Arguments::parse();
    if chromium::installed() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(run(&arguments));
    }
}

async fn run(arguments: &Arguments) {
    let mut report = arguments.output.report();
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: StoreSetup::in_folder(folder.path().join("data")),
        ..Config::default()
    };
    let running = serve::start(config).await.unwrap();
    let url = format!("http://{}/", running.addr());
    let mut random = Random::new(1);
    let begun = now();
    for first in (0..arguments.pending).step_by(BATCH as usize) {
        let due = |random: &mut Random| Duration::from_secs(600 + random.draw() % MONTH_SECS);
        let one = |number: u64| {
            let message = Message::to(format!("load.{}", number % 8)).id(format!("m-{number}"));
            message.text("an order that may not be paid").after(due(&mut random))
        };
        let sent = running.duly().send_batch((first..first + BATCH).map(one)).await;
        assert!(sent.iter().all(Result::is_ok));
    }
    report.alone("messages that wait", arguments.pending as f64, "");
    report.alone("sent in", begun.elapsed().as_secs_f64(), "s");
    report.alone("load of the machine", process::load(), "");
    pages(&mut report, &running).await;

    let busy = tokio::spawn(traffic(running.duly().clone()));
    for (name, screen, button) in [
        ("overview, next hour", "#/", "Hour"),
        ("overview, next month", "#/", "Month"),
        ("messages", "#/messages", "Pending"),
        ("messages of one topic", "#/messages?topic=load.3", "Pending"),
    ] {
        watch(&mut report, name, &format!("{url}{screen}"), button).await;
    }
    busy.abort();
    report.alone("load of the machine after", process::load(), "");
    report.finish();
    running.stop().await.unwrap();
}

/// What a page of a list costs the server: the first, one in the middle of the month, and 2,000 on the way to 100,000 messages.
async fn pages(report: &mut Report, running: &serve::Running) {
    let mut query = duly::Query { limit: 50, ..duly::Query::all(duly::State::Pending) };
    let took = |begun: std::time::Instant| begun.elapsed().as_secs_f64() * 1e3;
    let begun = now();
    running.duly().list(&query).await.unwrap();
    report.alone("the first page of 50", took(begun), "ms");
    query.due_from = Some(running.duly().now().saturating_add(Duration::from_secs(MONTH_SECS / 2)));
    let begun = now();
    running.duly().list(&query).await.unwrap();
    report.alone("a page in the middle of the month", took(begun), "ms");
    query.due_from = None;
    query.limit = 1_000;
    let begun = now();
    for _ in 0..100 {
        let page = running.duly().list(&query).await.unwrap();
        query.after = page.next;
    }
    report.alone("100,000 messages, a thousand each, per page", took(begun) / 100.0, "ms");
}

/// Some hundreds of messages a second, which come due soon and are taken.
async fn traffic(duly: duly::Duly) {
    loop {
        let soon = |number: u64| Message::to("traffic").after(Duration::from_millis(1_000 + number * 20));
        duly.send_batch((0..100).map(soon)).await;
        let receive =
            duly::Receive { max: 100, wait: Duration::from_millis(200), lease: Duration::from_secs(30) };
        if let Ok(received) = duly.receive("traffic", receive).await {
            let receipts: Vec<_> = received.iter().map(|message| &message.receipt).collect();
            let _ = duly.ack(&receipts).await;
        }
    }
}

/// Opens a screen in a fresh browser and presses one of its buttons: when something is first to be seen, and how long its scripts run for.
async fn watch(report: &mut Report, name: &str, url: &str, button: &str) {
    let browser = Browser::open(url, Window::default()).await;
    browser.until("document.querySelector('main .bar-slot, main tbody tr')").await;
    let paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime";
    report.alone(format!("{name}: first paint"), browser.run(paint).await.as_f64().unwrap(), "ms");
    let drawn = browser.run("return performance.now()").await.as_f64().unwrap();
    report.alone(format!("{name}: drawn with its data within"), drawn, "ms");
    browser.press(".seg button", button).await;
    // Every stretch of work that a person could feel, as the browser itself measures it.
    let observe = "
        window.longest = 0; window.long = 0;
        new PerformanceObserver((list) => {
          for (const one of list.getEntries()) { window.longest = Math.max(window.longest, one.duration); window.long += 1; }
        }).observe({ type: 'longtask' });";
    browser.run(observe).await;
    let before = script_seconds(&browser).await;
    browser.ask(&format!("new Promise((done) => setTimeout(done, {}))", WATCHED.as_millis())).await;
    let script = (script_seconds(&browser).await - before) / WATCHED.as_secs_f64() * 1e3;
    report.alone(format!("{name}: scripts, per second"), script, "ms");
    // The browser tells of what takes 50 ms or more.
    report.alone(format!("{name}: longest task, if over 50 ms"), number(&browser, "longest").await, "ms");
    report.alone(format!("{name}: tasks over 50 ms"), number(&browser, "long").await, "");
}

/// For how long scripts of the page have run.
async fn script_seconds(browser: &Browser) -> f64 {
    let cdp = |cmd: &str| json!({"cmd": cmd, "params": {}});
    browser.post("/goog/cdp/execute", cdp("Performance.enable")).await;
    let reply = browser.post("/goog/cdp/execute", cdp("Performance.getMetrics")).await;
    let metrics = reply["metrics"].as_array().unwrap();
    let script = metrics.iter().find(|metric| metric["name"] == "ScriptDuration").unwrap();
    script["value"].as_f64().unwrap()
}

async fn number(browser: &Browser, name: &str) -> f64 {
    browser.run(&format!("return window.{name}")).await.as_f64().unwrap_or_default()
}
