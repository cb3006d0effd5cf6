//! The few commands of this repository that have logic; everything else is plain cargo.

mod api;
mod bench;
mod chaos;
mod check;
mod jars;
mod nats;
mod peers;
mod programs;
mod python;
mod report;
mod runner;
mod scratch;
mod servers;
mod sim;
mod site;
mod step;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::step::Steps;

/// Tests, long runs and benchmarks of Duly.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, lints, all tests, documentation and the examples: what CI runs
    Test(test::Arguments),
    /// The same, and the licences and advisories of every dependency
    Check(test::Arguments),
    /// Install the real servers that tests start, where that is possible
    Servers,
    /// Build the documentation as a site in the target folder, with search
    Site,
    /// List what each library offers, in docs/reference/api
    Api(api::Arguments),
    /// Simulate the whole engine under every mix of faults
    Sim(sim::Arguments),
    /// Kill a process under load again and again, and count what was lost
    Chaos(chaos::Arguments),
    /// Measure, each figure beside what the machine itself can do
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let steps = Steps::begin();
    let done = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&steps, &arguments),
        Command::Check(arguments) => check::run(&steps, &arguments),
        Command::Servers => servers::run(&steps),
        Command::Site => site::run(&steps),
        Command::Api(arguments) => api::run(&steps, &arguments, &mut test::documentation()),
        Command::Sim(arguments) => sim::run(&steps, &arguments),
        Command::Chaos(arguments) => chaos::run(&steps, &arguments),
        Command::Bench(arguments) => bench::run(&steps, &arguments),
    };
    match done {
        Ok(()) => {
            steps.end();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("\nFAILED {failure}");
            ExitCode::FAILURE
        }
    }
}
