//! How late messages are, beside how late the machine's own sleep is in the same run.
//!
//! `bench_timer [-o json] [--seconds N] [--burst N] [--only NAME …]`; `--seconds` sets how long messages of a steady rate
//! come due, `--burst` how many are due in one millisecond.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

mod bed;
mod burst;
mod jitter;
mod steady;

use bed::{Lane, StoreKind};
use clap::Parser;
use testkit::bench::{process, report::Report};

/// Due per second.
const RATES: [u64; 3] = [1_000, 10_000, 100_000];

#[derive(Parser)]
struct Arguments {
    /// `json` prints one object per line instead of a table
    #[arg(short, long, default_value = "table")]
    output: String,
    /// How long messages of a steady rate come due
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Messages due in one millisecond
    #[arg(long, default_value_t = 1_000_000)]
    burst: usize,
    /// Only what has all these words: embedded, memory, sink, handler, 1000, 10000, 100000, burst
    #[arg(long)]
    only: Vec<String>,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = Report::new(arguments.output == "json");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |words: &[&str]| arguments.only.iter().all(|only| words.contains(&only.as_str()));
    for store_kind in [StoreKind::Embedded, StoreKind::Memory] {
        for lane in [Lane::Sink, Lane::Handler] {
            for rate in RATES {
                if wanted(&[store_kind.name(), lane.name(), &rate.to_string()]) {
                    runtime.block_on(steady::run(&mut report, store_kind, lane, rate, arguments.seconds));
                }
            }
        }
        if wanted(&[store_kind.name(), "burst"]) {
            runtime.block_on(burst::run(&mut report, store_kind, arguments.burst));
        }
    }
    report.alone("load average at the end", process::load(), "");
    report.finish();
}
