//! The simulation on demand: `cargo xtask sim --seeds N`, or one run again: `--mix crash+clock_jump --seed 7`.

use std::process::ExitCode;

use clap::Parser;
use testkit::simulation::{Mix, run_all, trace};

/// The whole engine under virtual time, every mix of faults × seeds
#[derive(Parser)]
struct Arguments {
    /// How many seeds for each mix
    #[arg(long, default_value_t = 32)]
    seeds: u64,
    /// Only this mix, e.g. crash+clock_jump, or none
    #[arg(long)]
    mix: Option<Mix>,
    /// Only this seed, told step by step
    #[arg(long, requires = "mix")]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let (Some(mix), Some(seed)) = (arguments.mix, arguments.seed) {
        return match trace(mix, seed) {
            Ok(report) => {
                println!("{report:#?}");
                ExitCode::SUCCESS
            }
            Err(violation) => {
                eprintln!("{violation}");
                ExitCode::FAILURE
            }
        };
    }
    let mixes: Vec<_> = arguments.mix.map_or_else(|| Mix::all().collect(), |mix| vec![mix]);
    let (reports, violations) = run_all(&mixes, 0..arguments.seeds);
    let sum = |of: fn(&testkit::simulation::Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (accepted, delivered, dead) = (sum(|r| r.accepted), sum(|r| r.delivered), sum(|r| r.dead));
    let (cancelled, twice) = (sum(|r| r.cancelled), sum(|r| u64::from(r.duplicates)));
    let slowest = reports.iter().map(|report| report.healed_in).max().unwrap_or_default();
    println!(
        "{} runs: {accepted} accepted, {delivered} delivered ({twice} twice), {dead} dead, {cancelled} cancelled; healed within {slowest:?}",
        reports.len() + violations.len(),
    );
    violations.iter().for_each(|violation| eprintln!("{violation}"));
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
