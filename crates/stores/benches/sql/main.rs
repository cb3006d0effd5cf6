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
    bench::{
        arguments::{self, Cases, Output},
        report::Report,
    },
    servers::{mysql, postgres, redis},
};
use tokio::runtime::Runtime;

#[derive(Parser)]
#[command(after_help = "Cases of --only: mysql, postgres, many, late, memory")]
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
    #[command(flatten)]
    cases: Cases,
    #[command(flatten)]
    output: Output,
}

fn main() {
    let arguments = Arguments::parse();
    if !(redis::installed() && mysql::installed() && postgres::installed()) {
        return;
    }
    arguments::run(&arguments.output, |report, runtime| run(&arguments, report, runtime));
}

fn run(arguments: &Arguments, report: &mut Report, runtime: &Runtime) {
    for kind in [bed::DatabaseKind::Mysql, bed::DatabaseKind::Postgres] {
        if arguments.cases.wants(kind.name()) {
            runtime.block_on(rates::measure(report, arguments, kind));
        }
        if arguments.cases.wants("many") {
            runtime.block_on(many::claims(report, arguments, kind));
        }
    }
    if arguments.cases.wants("late") {
        runtime.block_on(late::lateness(report, arguments));
    }
    if arguments.cases.wants("memory") {
        runtime.block_on(many::memory(report, arguments));
    }
}
