//! `duly-streams` beside a bare loop of `XADD`, `XREADGROUP` and `XACK` with the same client crate: `cargo xtask bench streams`.
//!
//! One real Redis with its append-only file, synced each second. The two take turns, and each figure is the middle one of its rounds.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod bare;
mod ours;

use clap::Parser;
use serde::{Deserialize, Serialize};
use testkit::{
    bench::{arguments::Output, process, report::Report},
    servers::redis::{Redis, installed},
};

#[derive(Parser)]
pub(crate) struct Arguments {
    /// Messages that are sent one after the other
    #[arg(long, default_value_t = 20_000)]
    single: usize,
    /// Messages that are sent together and consumed
    #[arg(long, default_value_t = 200_000)]
    pub(crate) many: usize,
    /// Entries with each call
    #[arg(long, default_value_t = 500)]
    pub(crate) batch: usize,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// What is sent: about a hundred bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) text: String,
}

impl Order {
    pub(crate) fn new(number: usize) -> Self {
        Self { number: number as u64, text: "x".repeat(70) }
    }
}

/// A server that does not rewrite its append-only file in the middle of a case.
fn server() -> Redis {
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]);
    redis
}

/// How many per second, in the rounds of one case.
#[derive(Default)]
struct Rounds(Vec<f64>);

impl Rounds {
    async fn measure(&mut self, count: usize, work: impl Future<Output = ()>) {
        let began = process::now();
        work.await;
        self.0.push(count as f64 / began.elapsed().as_secs_f64());
    }

    fn middle(mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[self.0.len() / 2]
    }
}

async fn run(report: &mut Report, arguments: &Arguments) {
    let mut figures: [Rounds; 7] = Default::default();
    let [bare_one, our_one, bare_many, our_many, our_async, bare_read, our_read] = &mut figures;
    for _ in 0..arguments.rounds {
        let (bare, ours) = (bare::Bare::new(server()).await, ours::Ours::new(server()).await);
        bare_one.measure(arguments.single, bare.send_one_by_one(arguments.single)).await;
        our_one.measure(arguments.single, ours.send_one_by_one(arguments.single)).await;
        bare_many.measure(arguments.many, bare.send_many(arguments)).await;
        our_many.measure(arguments.many, ours.send_many(arguments)).await;
        our_async.measure(arguments.many, ours.send_async(arguments)).await;
        bare.begin_group().await;
        bare_read.measure(arguments.many, bare.consume(arguments)).await;
        our_read.measure(arguments.many, ours.consume(arguments)).await;
    }
    let [bare_one, our_one, bare_many, our_many, our_async, bare_read, our_read] =
        figures.map(Rounds::middle);
    let batch = arguments.batch;
    report.beside("producer: send, one after the other", our_one, "msg/s", bare_one);
    report.beside(format!("producer: send_batch, {batch} with each call"), our_many, "msg/s", bare_many);
    report.beside("producer: send_async", our_async, "msg/s", bare_many);
    report.beside(
        format!("consumer: read, decode, handle, ack, {batch} at once"),
        our_read,
        "msg/s",
        bare_read,
    );
}

fn main() {
    let arguments = Arguments::parse();
    if !installed() {
        return;
    }
    let mut report = arguments.output.report();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    report.alone("load of the machine before", process::load(), "");
    runtime.block_on(run(&mut report, &arguments));
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}
