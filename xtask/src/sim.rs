//! `cargo xtask sim`: the whole engine under virtual time, every mix of faults × seeds.

use crate::step::{Failure, Steps, testkit};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many seeds to run for each mix of faults
    #[arg(long, default_value_t = 32, value_name = "N")]
    seeds: u64,
    /// Only this mix, as a failed run names it
    #[arg(long, value_name = "M")]
    mix: Option<String>,
    /// Only this seed: replays a failed run step by step
    #[arg(long, value_name = "S", requires = "mix")]
    seed: Option<u64>,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    let mut command = testkit("sim");
    command.args(["--seeds", &arguments.seeds.to_string()]);
    if let Some(mix) = &arguments.mix {
        command.args(["--mix", mix]);
    }
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    steps.run("simulation", &mut command)
}
