//! `cargo xtask bench peers`: the same work on Duly and on systems that can be installed beside it. Each phase has a fresh server with an
//! empty folder, and a driver of its own that sends and receives. Settings and phases are in docs/reference/benchmarks.md.

mod driver;
mod instance;
mod machine;
mod phase;
mod process_tree;
mod sandbox;
mod servers;
mod system;
mod table;

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Parser, ValueEnum};
use serde_json::Value;

use self::{driver::Drivers, instance::Instance, phase::Phase, system::System};
use crate::{
    servers::find,
    step::{Failure, Steps, cargo, target},
};

/// The same work on Duly and on its peers.
#[derive(Parser)]
#[command(no_binary_name = true, name = "cargo xtask bench peers")]
struct Options {
    /// Only these: `duly,duly-redis,bullmq`
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = system::names())]
    systems: Vec<String>,
    /// Only these phases
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    phases: Vec<Phase>,
    /// Messages that are accepted, and of the burst
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    count: u64,
    /// A burst of 100,000
    #[arg(long)]
    large: bool,
    /// Messages per second of the phase `late`
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000))]
    rate: u64,
    /// How long the phase `late` sends
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Messages that wait when the memory is measured
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pending: u64,
    /// This binary of Duly instead of one that is built for speed
    #[arg(long, value_name = "FILE")]
    duly: Option<PathBuf>,
    /// `table`, or `json`: an object per system and phase, one per line
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl Options {
    fn phases(&self) -> Vec<Phase> {
        let is_wanted = |phase: &Phase| self.phases.is_empty() || self.phases.contains(phase);
        Phase::value_variants().iter().copied().filter(is_wanted).collect()
    }

    fn systems(&self) -> impl Iterator<Item = &'static System> {
        let is_wanted =
            |system: &&System| self.systems.is_empty() || self.systems.iter().any(|name| name == system.name);
        system::ALL.iter().filter(is_wanted)
    }
}

/// What one system did in one phase, as its driver says it, and what its servers took.
struct Figures {
    system: &'static System,
    phase: Phase,
    values: Value,
}

pub(crate) fn run(steps: &Steps, arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse_from(arguments);
    let mut wanted = Vec::new();
    for system in options.systems() {
        match system.missing(|program| find(program).is_some()) {
            Some(how) => steps.skip(system.name, how)?,
            None => wanted.push(system),
        }
    }
    let duly = match &options.duly {
        Some(file) => file.clone(),
        None if wanted.iter().any(|system| system.has_duly()) => build_duly(steps)?,
        None => PathBuf::new(),
    };
    let drivers = Drivers::install(steps, &wanted)?;
    let failed = |source| Failure::Run { name: "benchmark of peers".into(), source };
    machine::warn_of_memory_files(steps);
    sandbox::sweep();
    let mut all = Vec::new();
    let mut broken = Vec::new();
    for system in wanted {
        for phase in options.phases() {
            eprintln!("==> {}: {}", system.name, phase.title());
            match measure(&options, &drivers, &duly, system, phase, &all) {
                Ok(values) => {
                    eprintln!("    {values}");
                    all.push(Figures { system, phase, values });
                }
                Err(error) => {
                    eprintln!("    FAILED {}: {error}", system.name);
                    broken.push(format!("{} ({})", system.name, phase.title()));
                }
            }
        }
    }
    match options.output {
        Output::Table => print!("{}\n{}", table::render(&all), machine::describe()),
        Output::Json => print!("{}", table::json(&all)),
    }
    if broken.is_empty() { Ok(()) } else { Err(failed(io::Error::other(broken.join(", ")))) }
}

fn build_duly(steps: &Steps) -> Result<PathBuf, Failure> {
    steps.run(
        "build of Duly",
        &mut cargo(&["build", "--release", "--package", "duly-cli", "--bin", "duly"]),
    )?;
    target()
        .map(|target| target.join("release/duly"))
        .ok_or_else(|| Failure::Run { name: "build of Duly".into(), source: io::ErrorKind::NotFound.into() })
}

fn measure(
    options: &Options,
    drivers: &Drivers,
    duly: &Path,
    system: &'static System,
    phase: Phase,
    before: &[Figures],
) -> io::Result<Value> {
    // As fast as it accepted in batches a moment ago: a burst is due when all of it is accepted.
    let batches = before.iter().find(|it| it.system.name == system.name && it.phase == Phase::Batch);
    let per_s = batches.and_then(|it| it.values["per_s"].as_f64());
    let mut instance = Instance::start(system, duly)?;
    if phase == Phase::Fill {
        // What the first messages of all take is no message's.
        drivers.run(system, phase, &phase::warm_up(), &mut instance)?;
    }
    let space = instance.space()?;
    let processor_s = instance.processor_s();
    let words = phase.arguments(options, per_s);
    let mut values = drivers.run(system, phase, &words, &mut instance)?;
    if phase != Phase::Crash {
        values["server_cpu_s"] = (instance.processor_s() - processor_s).into();
    }
    if phase == Phase::Fill {
        let grown = instance.space()?.saturating_sub(space);
        let accepted = values["accepted"].as_u64().unwrap_or_default().max(1);
        values["bytes_per_message"] = (grown / accepted).into();
        values["bytes_are"] = instance.space_is().into();
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
