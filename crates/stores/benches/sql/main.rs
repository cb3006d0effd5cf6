//! Messages in MySQL, PostgreSQL and redis+mysql, beside bare statements on the same server: `cargo xtask bench sql`.
//!
//! Real servers with durable settings; everything in one run.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod bare;
mod bed;
mod late;
mod many;
mod rates;

use clap::Parser;
use testkit::{
    bench::{process, report::Report},
    servers::{mysql, postgres, redis},
};

#[derive(Parser)]
pub(crate) struct Arguments {
    /// Messages that wait for later meanwhile
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) pending: usize,
    /// Messages that are inserted and delivered while it is measured
    #[arg(long, default_value_t = 40_000)]
    pub(crate) count: usize,
    /// Messages that wait in the large case, beside a hundred thousand
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) many: usize,
    /// Messages that wait when the memory of Redis is looked at, beside a hundred thousand
    #[arg(long, default_value_t = 5_000_000)]
    pub(crate) beside_redis: usize,
    /// Messages that become due in each second when lateness is measured
    #[arg(long, default_value_t = 500)]
    pub(crate) rate: u64,
    /// For how many seconds
    #[arg(long, default_value_t = 15)]
    pub(crate) seconds: u64,
    /// Bytes of a body
    #[arg(long, default_value_t = 100)]
    pub(crate) body: usize,
    /// Only these, with commas between: mysql, postgres, many, late, memory
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// `json`: one object per line
    #[arg(short, long)]
    output: Option<String>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    if !(redis::installed() && mysql::installed() && postgres::installed()) {
        return;
    }
    let mut report = Report::new(arguments.output.as_deref() == Some("json"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    report.alone("load of the machine before", process::load(), "");
    for kind in [bed::Kind::Mysql, bed::Kind::Postgres] {
        if wanted(kind.name()) {
            runtime.block_on(rates::measure(&mut report, &arguments, kind));
        }
        if wanted("many") {
            runtime.block_on(many::claims(&mut report, &arguments, kind));
        }
    }
    if wanted("late") {
        runtime.block_on(late::lateness(&mut report, &arguments));
    }
    if wanted("memory") {
        runtime.block_on(many::memory(&mut report, &arguments));
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}
