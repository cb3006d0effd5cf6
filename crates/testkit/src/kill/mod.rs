//! kill -9 under load: a child process that is killed at random moments, and a ledger in the parent, which is not.
//!
//! The child accepts messages into an embedded store and delivers them to a file opened for appending, which
//! plays the target: what is written there has arrived, whatever happens to the child. What the child was told
//! about its messages it prints at once; the parent reads, kills, starts again, and judges at the end.

mod child;
mod ledger;
mod poison;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use duly_core::schedule::Random;

pub use child::{IN_FLIGHT, work};
pub use ledger::{Ledger, Wrong};
pub use poison::{Autopsy, poison, poisoned};

/// The first word on a child's command line: the program is to be the child, in this folder, in this role.
pub const CHILD: &str = "--child";

/// What a child is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accept and deliver until killed.
    Work,
    /// Deliver what is left, tell the state of every message, and end.
    Drain,
    /// Handle a poison message and its neighbours.
    Poison,
}

impl Role {
    const ALL: [(Self, &str); 3] = [(Self::Work, "work"), (Self::Drain, "drain"), (Self::Poison, "poison")];

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(role, _)| role)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }
}

/// Starts `program` as a child in `folder`; `life` numbers the children of one folder.
fn start(program: &Path, role: Role, folder: &Path, life: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(program)
        .args([CHILD, role.name()])
        .arg(folder)
        .arg(life.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Kills a child `kills` times under load, lets the last one finish the work, and judges.
pub fn kill_loop(program: &Path, folder: &Path, kills: u64, seed: u64) -> Result<Ledger, Wrong> {
    let mut random = Random::new(seed);
    let mut ledger = Ledger::default();
    for life in 0..kills {
        let (mut child, lines) = start(program, Role::Work, folder, life);
        // Random moments, measured in the child's own progress: from its very start to well under way.
        let mut left = if random.draw().is_multiple_of(8) { 0 } else { random.draw() % 600 };
        let mut lines = lines.lines();
        while left > 0 {
            let Some(Ok(line)) = lines.next() else { break };
            ledger.on_line(&line);
            left -= 1;
        }
        if left > 0 && child.try_wait().unwrap().is_some() {
            return Err(Wrong(format!("child {life} ended by itself: {:?}", child.wait().unwrap())));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died counts as well; a torn last word does not.
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        rest.iter().filter(|line| line.ends_with('.')).for_each(|line| ledger.on_line(line));
        ledger.kills += 1;
    }
    let (mut child, lines) = start(program, Role::Drain, folder, kills);
    for line in lines.lines() {
        ledger.on_line(&line.unwrap());
    }
    let status = child.wait().unwrap();
    if !status.success() {
        return Err(Wrong(format!("I5: the last child did not come to an end of the work: {status}")));
    }
    ledger.read_target(&folder.join(child::TARGET));
    ledger.judge()
}
