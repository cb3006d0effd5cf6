//! kill -9 under load, on demand: `cargo xtask chaos --kills N`. The program is parent and child in one.
#![expect(clippy::unwrap_used, reason = "in a test kit a panic is the answer: it fails the test")]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use testkit::kill::{CHILD, Role, kill_loop, poison, work};

/// Kills a process that accepts and delivers, again and again, and counts what is lost
#[derive(Parser)]
struct Arguments {
    /// How many times to kill
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// Where the random moments start
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().collect();
    if let [_, child, role, folder, life] = &words[..]
        && child == CHILD
    {
        let (role, life) = (Role::named(role).unwrap(), life.parse().unwrap());
        be_the_child(role, Path::new(folder), life);
        return ExitCode::SUCCESS;
    }
    let Arguments { kills, seed } = Arguments::parse();
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = std::env::current_exe().unwrap();
    match kill_loop(&program, folder.path(), kills, seed) {
        Ok(ledger) => {
            let (accepted, twice, max) = (ledger.accepted(), ledger.duplicates(), ledger.duplicates_max());
            println!("{kills} kills: {accepted} accepted, none lost, {twice} arrived twice (at most {max})");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            // What is wrong must be looked at: the folder stays.
            let kept = folder.keep();
            eprintln!("{wrong}\n  the data folder is kept in {}", kept.display());
            ExitCode::FAILURE
        }
    }
}

fn be_the_child(role: Role, folder: &Path, life: u64) {
    testkit::block_on(async {
        match role {
            Role::Poison => poison(folder, life).await,
            Role::Work | Role::Drain => work(role, folder, life).await,
        }
    });
}
