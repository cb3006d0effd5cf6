//! Messages into Redis Streams, beside the recipes that people write by hand: `cargo xtask bench redis`.
//!
//! One real Redis with its append-only file, synced each second; everything in one run.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod bed;
mod by_hand;
mod duly_side;
mod many;

use by_hand::Entry;
use clap::Parser;
use testkit::{
    bench::{
        arguments::{self, Cases, Output},
        report::Report,
    },
    servers::redis,
};
use tokio::runtime::Runtime;

#[derive(Parser)]
#[command(after_help = "Cases of --only: backlog, late, two, many")]
pub(crate) struct Arguments {
    /// Messages that are due already
    #[arg(long, default_value_t = 200_000)]
    pub(crate) backlog: usize,
    /// Of those, how many the plain recipe gets
    #[arg(long, default_value_t = 20_000)]
    pub(crate) plain: usize,
    /// Messages that become due in each second
    #[arg(long, default_value_t = 2_000)]
    pub(crate) rate: u64,
    /// For how many seconds
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Messages that wait in the large case
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) waiting: usize,
    /// Over how many topics
    #[arg(long, default_value_t = 10_000)]
    pub(crate) topics: usize,
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
    if !redis::installed() {
        return;
    }
    arguments::run(&arguments.output, |report, runtime| run(&arguments, report, runtime));
}

fn run(arguments: &Arguments, report: &mut Report, runtime: &Runtime) {
    if arguments.cases.wants("backlog") {
        let plain = by_hand::plain_backlog(report, arguments);
        let bare = by_hand::bare_backlog(report, arguments, Entry::Bare);
        let like = by_hand::bare_backlog(report, arguments, Entry::LikeOurs);
        runtime.block_on(duly_side::backlog(report, arguments, [plain, bare, like]));
    }
    if arguments.cases.wants("two") {
        let one = runtime.block_on(duly_side::nodes(report, arguments, 1, None));
        runtime.block_on(duly_side::nodes(report, arguments, 2, Some(one)));
    }
    if arguments.cases.wants("late") {
        let plain = by_hand::plain_late(report, arguments);
        runtime.block_on(duly_side::late(report, arguments, plain));
    }
    if arguments.cases.wants("many") {
        runtime.block_on(many::waiting(report, arguments));
    }
}
