//! The webhook sink: `cargo xtask bench webhook`.
//!
//! `rates`: messages per second to one endpoint, beside a bare loop of the same HTTP client. `slow` and `silent`: how late an
//! endpoint's messages come, beside another that answers after six seconds, or never, and alone. `origins`: what 10,000 origins
//! cost in memory, beside as many messages to one. A message's lateness is from its due time to its arrival.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod bare;
mod origins;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use duly::{Clock, Duly, Message, SinkOptions, SystemClock};
use duly_core::Timestamp;
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use http::Response;
use testkit::{
    bench::{
        arguments::Output,
        process,
        report::{Report, quantile},
    },
    http::{HttpServer, Reply, Request},
};

/// For the messages to be accepted, before the first is due.
const AHEAD: Duration = Duration::from_secs(3);
/// What has not come by then will not come.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);
/// The slow endpoint takes this long.
const SLOW: Duration = Duration::from_secs(6);

#[derive(Parser)]
struct Arguments {
    /// Only these, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<Case>,
    /// rates: messages on each side
    #[arg(long, default_value_t = 20_000)]
    messages: usize,
    /// rates: requests that the bare loop has under way, at most; as many as the sink by default
    #[arg(long, default_value_t = 128)]
    window: usize,
    /// slow, silent: for so many seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Messages per second to one endpoint, beside a bare loop
    Rates,
    /// One message in twenty of 100 per second to a slow path
    Slow,
    /// One message per second to a silent URL, 500 to a good one
    Silent,
    /// 10,000 origins, one message to each
    Origins,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = arguments.output.report();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |case| arguments.only.is_empty() || arguments.only.contains(&case);
    report.alone("load of the machine before", process::load(), "");
    if wanted(Case::Rates) {
        runtime.block_on(rates(&mut report, arguments.messages, arguments.window));
    }
    if wanted(Case::Slow) {
        runtime.block_on(slow(&mut report, arguments.seconds));
    }
    if wanted(Case::Silent) {
        runtime.block_on(silent(&mut report, arguments.seconds));
    }
    if wanted(Case::Origins) {
        runtime.block_on(origins::origins(&mut report));
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}

async fn start(settings: &str) -> Duly {
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'webhook'\nallow_private = true\n{settings}")).unwrap();
    let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
    let options = SinkOptions { batch: config.batch(), ..SinkOptions::default() };
    Duly::builder().store(Arc::new(MemoryStore::new())).sink("hooks", sink, options).start().await.unwrap()
}

/// How late each message came that this server answers at once, in ms.
#[derive(Clone)]
struct Late {
    all: Arc<Mutex<Vec<f64>>>,
    clock: Arc<SystemClock>,
}

impl Late {
    fn new() -> Self {
        Self { all: Arc::default(), clock: Arc::new(SystemClock::new().unwrap()) }
    }

    /// A server whose path `/slow` takes its time.
    fn server(&self) -> HttpServer {
        let late = self.clone();
        HttpServer::start(move |request| match request.uri.path() {
            "/slow" => Reply::Later(Response::new(Bytes::new()), SLOW),
            _ => late.came(request),
        })
    }

    /// Writes down a message, and takes it.
    fn came(&self, request: &Request) -> Reply {
        let due: f64 = request.header("duly-due").unwrap().parse().unwrap();
        self.all.lock().unwrap().push(self.clock.now().wall_micros() as f64 / 1e3 - due);
        Reply::status(204, "")
    }

    fn len(&self) -> usize {
        self.all.lock().unwrap().len()
    }

    fn take(&self) -> Vec<f64> {
        let mut late = std::mem::take(&mut *self.all.lock().unwrap());
        late.sort_by(f64::total_cmp);
        late
    }
}

/// Sends the messages, and waits for `count` of them at the good endpoint.
async fn run(duly: &Duly, late: &Late, messages: Vec<Message>, count: usize) -> Vec<f64> {
    for batch in messages.chunks(1_000) {
        for sent in duly.send_batch(batch.to_vec()).await {
            sent.unwrap();
        }
    }
    let (mut last, mut waited) = (0, Duration::ZERO);
    while late.len() < count && waited < PATIENCE {
        waited = if late.len() == last { waited + TICK } else { Duration::ZERO };
        last = late.len();
        #[expect(clippy::disallowed_methods, reason = "a benchmark goes by real time")]
        tokio::time::sleep(TICK).await;
    }
    late.take()
}

/// One message each `1/rate` seconds from `first` on.
fn spread(topic: &str, rate: u64, seconds: u64, first: Timestamp) -> Vec<Message> {
    let due = |n: u64| Timestamp::from_millis(first.as_millis() + n * 1_000 / rate);
    (0..rate * seconds).map(|n| Message::to_sink("hooks", topic).at(due(n)).text("x")).collect()
}

async fn rates(report: &mut Report, messages: usize, window: usize) {
    let late = Late::new();
    let server = late.server();
    let bare = bare::rate(&server, messages, window).await;
    late.take();
    let duly = start(&format!("url = '{}'", server.url())).await;
    let due = duly.now().saturating_add(AHEAD * 2);
    let all = (0..messages).map(|_| Message::to_sink("hooks", "orders").at(due).text("x")).collect();
    let late = run(&duly, &late, all, messages).await;
    let last = late.last().copied().unwrap_or_default();
    let rate = late.len() as f64 / last * 1e3;
    report.beside("to one endpoint, all due at once, and a bare loop", rate, "1/s", bare);
    duly.shutdown().await.unwrap();
}

fn lateness(report: &mut Report, what: &str, beside: &[f64], alone: &[f64]) {
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let what = format!("{what}: {name} of {}", beside.len());
        report.beside(what, quantile(beside, part), "ms", quantile(alone, part));
    }
    report.alone("    load of the machine", process::load(), "");
}

async fn slow(report: &mut Report, seconds: u64) {
    let late = Late::new();
    let server = late.server();
    let duly = start(&format!("url = '{}'", server.url())).await;
    let count = (95 * seconds) as usize;
    let first = duly.now().saturating_add(AHEAD);
    let alone = run(&duly, &late, spread("fast", 95, seconds, first), count).await;
    let first = duly.now().saturating_add(AHEAD);
    let mut both = spread("fast", 95, seconds, first);
    both.extend(spread("slow", 5, seconds, first));
    let beside = run(&duly, &late, both, count).await;
    lateness(report, "95/s beside 5/s that take 6 s, and alone", &beside, &alone);
    duly.shutdown().await.unwrap();
}

async fn silent(report: &mut Report, seconds: u64) {
    let late = Late::new();
    let good = late.server();
    let mute = HttpServer::start(|_| Reply::Never);
    let duly = start("allow_urls = ['http://127.0.0.1:*']").await;
    let (good, mute) = (format!("{}/hook", good.url()), format!("{}/hook", mute.url()));
    let count = (500 * seconds) as usize;
    let first = duly.now().saturating_add(AHEAD);
    let alone = run(&duly, &late, spread(&good, 500, seconds, first), count).await;
    let first = duly.now().saturating_add(AHEAD);
    let mut both = spread(&good, 500, seconds, first);
    both.extend(spread(&mute, 1, seconds, first));
    let beside = run(&duly, &late, both, count).await;
    lateness(report, "500/s beside a silent URL at 1/s, and alone", &beside, &alone);
    duly.shutdown().await.unwrap();
}
