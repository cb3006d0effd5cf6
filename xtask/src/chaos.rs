//! `cargo xtask chaos`: kill -9 under load, with a ledger outside the process that is killed.

use crate::step::{Failure, Steps, testkit};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many times to kill
    #[arg(long, default_value_t = 200, value_name = "N")]
    kills: u64,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    steps.run("kill loop", testkit("kill_loop").args(["--kills", &arguments.kills.to_string()]))
}
