//! What the embedded store does in a second, beside a raw append + fdatasync of the same bytes in the same run.
//!
//! `bench_store [-o json] [--pending N] [--seconds N] [--only NAME …]`; `--pending` sets how many messages wait in the
//! large cases, `--seconds` how long the steady case runs.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

mod bed;
mod claim;
mod insert;
mod large;
mod steady;

use clap::Parser;
use report::Report;
use testkit::bench::{process, report};

#[derive(Parser)]
struct Arguments {
    /// `json` prints one object per line instead of a table
    #[arg(short, long, default_value = "table")]
    output: String,
    /// Messages that wait in the large cases
    #[arg(long, default_value_t = 1_000_000)]
    pending: usize,
    /// Length of the steady case
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Only these cases: insert, group, fire, get, steady, large, cancelled, undrained
    #[arg(long)]
    only: Vec<String>,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = Report::new(arguments.output == "json");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    if wanted("insert") {
        runtime.block_on(insert::batches(&mut report));
    }
    if wanted("group") {
        runtime.block_on(insert::callers(&mut report));
    }
    if wanted("fire") {
        runtime.block_on(claim::fire(&mut report));
    }
    if wanted("get") {
        runtime.block_on(claim::by_id(&mut report));
    }
    if wanted("steady") {
        runtime.block_on(steady::in_and_out(&mut report, arguments.seconds));
    }
    if wanted("large") {
        runtime.block_on(large::many_pending(&mut report, arguments.pending));
    }
    if wanted("cancelled") {
        runtime.block_on(large::mostly_cancelled(&mut report, arguments.pending));
    }
    if wanted("undrained") {
        runtime.block_on(large::undrained(&mut report, arguments.pending));
    }
    report.finish();
}
