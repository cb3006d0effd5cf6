//! The whole engine under virtual time: every mix of faults, replayed by its seed.
//!
//! One run: producers send, cancel and move messages for a minute while the mix's faults strike; then faults
//! stop, and the invariants I1 to I5 must hold against a ledger kept outside. Nothing in it reads a real clock
//! or draws real chance, so a failed run can be had again.

mod client;
mod dice;
mod ledger;
mod life;
mod mix;
mod rest;
mod script;
mod slow_store;
mod target;
mod world;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use duly_core::{Clock, MessageId, Store};

pub use ledger::Broken;
pub use mix::{Fault, Mix};

use life::{Exit, IN_FLIGHT_MAX, Run};
use world::World;

use crate::planted::Bug;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Messages accepted.
    pub accepted: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages given up.
    pub dead: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Copies beyond the first.
    pub duplicates: u32,
    /// How often the engine was started.
    pub lives: u64,
    /// How long after the last due time and the last fault everything had ended.
    pub healed_in: Duration,
    /// The latest first arrival after its due time.
    pub lateness_ms_max: u64,
    /// Two runs that went the same way have the same one.
    pub digest: u64,
}

/// A run that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Under these faults.
    pub mix: Mix,
    /// With this seed.
    pub seed: u64,
    /// Which one.
    pub broken: Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mix, seed, broken } = self;
        write!(f, "{broken}\n  again: cargo xtask sim --mix {mix} --seed {seed}")
    }
}

impl std::error::Error for Violation {}

/// One run.
pub fn run(mix: Mix, seed: u64) -> Result<Report, Violation> {
    run_with(mix, seed, None)
}

/// One run, told on stderr while it goes.
pub fn trace(mix: Mix, seed: u64) -> Result<Report, Violation> {
    run_in(&World::new(mix, seed, true), mix, seed, None)
}

/// One run with a bug planted in the store.
pub fn run_with(mix: Mix, seed: u64, bug: Option<Bug>) -> Result<Report, Violation> {
    run_in(&World::new(mix, seed, false), mix, seed, bug)
}

fn run_in(world: &Arc<World>, mix: Mix, seed: u64, bug: Option<Bug>) -> Result<Report, Violation> {
    let mut run = Run::new(world, bug);
    loop {
        let (runtime, rest) = rest::runtime();
        let exit = runtime.block_on(run.live(&rest));
        // Nobody is asked to stop: tasks are dropped wherever they stand, as a kill would.
        drop(runtime);
        match exit {
            Exit::Crashed => {
                world.trace(|| "the process died".into());
                run.memory.restart(world.clock.now());
            }
            Exit::Stopped => {
                world.trace(|| "the process stopped".into());
                // Only what faults kept it from handing back may still be in flight.
                let excused =
                    Fault::ALL.into_iter().any(|fault| fault != Fault::LostWakeUp && mix.has(fault));
                world.ledger().losses += u32::from(excused);
                run.memory.restart(world.clock.now());
            }
            Exit::Over => break,
        }
    }
    judge(&run).map_err(|broken| Violation { mix, seed, broken })
}

/// The store's last word against the ledger's.
fn judge(run: &Run) -> Result<Report, Broken> {
    let (runtime, _) = rest::runtime();
    let mut ledger = run.world.ledger();
    let ids: Vec<MessageId> = ledger.entries.keys().cloned().collect();
    let records = runtime.block_on(run.memory.get(&ids)).unwrap();
    for (id, record) in ids.iter().zip(records) {
        ledger.judge(id, record.map(|record| record.state), IN_FLIGHT_MAX);
    }
    let duplicates = ledger.judge_copies(IN_FLIGHT_MAX);
    let totals = runtime.block_on(run.memory.totals()).unwrap();
    if !totals.balance() {
        ledger.break_promise(Broken::Totals(format!("{totals:?}")));
    }
    if let Some(broken) = ledger.broken.clone() {
        return Err(broken);
    }
    Ok(Report {
        accepted: totals.accepted,
        delivered: totals.delivered,
        dead: totals.dead,
        cancelled: totals.cancelled,
        duplicates,
        lives: run.lives,
        healed_in: run.healed_in,
        lateness_ms_max: ledger.lateness_ms_max(),
        digest: ledger.digest(),
    })
}

/// All of `mixes` × `seeds`, spread over the machine's cores. The first violation of each mix, in the mixes' order.
pub fn run_all(mixes: &[Mix], seeds: std::ops::Range<u64>) -> (Vec<Report>, Vec<Violation>) {
    let next = AtomicU64::new(0);
    let count = seeds.end - seeds.start;
    let total = count * mixes.len() as u64;
    let worker = || {
        let (mut reports, mut violations) = (Vec::new(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total {
                return (reports, violations);
            }
            let mix = mixes[(number / count) as usize];
            match run(mix, seeds.start + number % count) {
                Ok(report) => reports.push(report),
                Err(violation) => violations.push(violation),
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let (mut reports, mut violations) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            let (some_reports, some_violations) = worker.join().unwrap();
            reports.extend(some_reports);
            violations.extend(some_violations);
        }
    });
    violations.sort_by_key(|violation| (violation.mix.bits(), violation.seed));
    (reports, violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 32;

    #[test]
    fn every_mix_of_faults_holds_the_invariants() {
        let mixes: Vec<_> = Mix::all().collect();
        let (reports, violations) = run_all(&mixes, 0..SEEDS);
        let traced: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(traced.is_empty(), "{} runs broke a promise:\n{}", traced.len(), traced.join("\n"));
        assert_eq!(reports.len() as u64, 64 * SEEDS);
        // A simulation in which nothing happens holds every invariant.
        let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
        assert!(sum(|report| report.delivered) > 20 * 64 * SEEDS);
        assert!(sum(|report| report.cancelled) > 64 * SEEDS);
        assert!(sum(|report| report.dead) > 0 && sum(|report| u64::from(report.duplicates)) > 0);
        assert!(sum(|report| report.lives) > 64 * SEEDS);
    }

    #[test]
    fn without_faults_nothing_is_late_or_twice() {
        for seed in 0..SEEDS {
            let report = run(Mix::default(), seed).unwrap();
            assert_eq!((report.duplicates, report.dead, report.lives), (0, 0, 1));
            // The targets' own slowness is up to 80 ms, and a full lane waits for it a few times.
            assert!(report.lateness_ms_max < 500, "{report:?}");
        }
    }

    #[test]
    fn a_run_goes_the_same_way_twice() {
        for mix in Mix::all() {
            assert_eq!(run(mix, 7), run(mix, 7), "{mix}");
        }
    }

    #[test]
    fn the_simulation_catches_planted_bugs() {
        for bug in [
            Bug::ClaimsEarly,
            Bug::ForgetsAnInsert,
            Bug::LosesTheMessageOnRetry,
            Bug::IgnoresCancel,
            Bug::IgnoresReschedule,
            Bug::HandsOutTwice,
            Bug::ForgetsLostLeases,
            Bug::ForgetsToWake,
            Bug::CountsAnOutage,
            Bug::NeverDoubts,
            Bug::IgnoresPause,
        ] {
            let runs = (0..SEEDS).flat_map(|seed| Mix::all().map(move |mix| (mix, seed)));
            let caught = runs.map(|(mix, seed)| run_with(mix, seed, Some(bug))).find_map(Result::err);
            println!("{bug:?}: {caught:?}");
            assert!(caught.is_some(), "no run catches {bug:?}");
        }
    }
}
