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
    bench::{process, report::Report},
    servers::redis,
};

#[derive(Parser)]
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
    /// Only these, with commas between: backlog, late, two, many
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
    if !redis::installed() {
        return;
    }
    let mut report = Report::new(arguments.output.as_deref() == Some("json"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    report.alone("load of the machine before", process::load(), "");
    if wanted("backlog") {
        let plain = by_hand::plain_backlog(&mut report, &arguments);
        let bare = by_hand::bare_backlog(&mut report, &arguments, Entry::Bare);
        let like = by_hand::bare_backlog(&mut report, &arguments, Entry::LikeOurs);
        runtime.block_on(duly_side::backlog(&mut report, &arguments, [plain, bare, like]));
    }
    if wanted("two") {
        let one = runtime.block_on(duly_side::nodes(&mut report, &arguments, 1, None));
        runtime.block_on(duly_side::nodes(&mut report, &arguments, 2, Some(one)));
    }
    if wanted("late") {
        let plain = by_hand::plain_late(&mut report, &arguments);
        runtime.block_on(duly_side::late(&mut report, &arguments, plain));
    }
    if wanted("many") {
        runtime.block_on(many::waiting(&mut report, &arguments));
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}
