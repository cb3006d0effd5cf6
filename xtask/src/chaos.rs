//! `cargo xtask chaos`: kill -9 under load, with a ledger outside the process that is killed; and three nodes on every store while things
//! break, each round with other faults.

use crate::step::{Failure, Steps, cargo, testkit};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many times to kill
    #[arg(long, default_value_t = 200, value_name = "N")]
    kills: u64,
    /// How many rounds of nodes on Redis, databases and redis+mysql; each takes minutes
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: u64,
    /// Only cases with this in their names, such as `sql::mysql` or `redis_and_mysql`, and no kill loop
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// The first round is this one: a round that failed is begun again with its number
    #[arg(long, default_value_t = 1, value_name = "ROUND")]
    from: u64,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { kills, rounds, case, from } = arguments;
    if case.is_none() {
        steps.run("kill loop", testkit("kill_loop").args(["--kills", &kills.to_string()]))?;
    }
    for round in *from..from.saturating_add(*rounds) {
        let mut nodes = cargo(&["test", "--package", "duly-cli", "--test", "chaos", "--"]);
        nodes.args(case).arg("--nocapture").env("DULY_CHAOS_SEED", round.to_string());
        steps.run(&format!("nodes, round {round}"), &mut nodes)?;
    }
    Ok(())
}
