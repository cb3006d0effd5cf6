//! The processes of one server: the first, and a child for each connection and each duty.
//!
//! The children are in sessions of their own, so that no signal to a group reaches them all.

use std::{fs, path::Path, process::Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::servers::{database::READY_WITHIN, wait_until};

/// Stops them all. The first one first: then nobody is born, and nobody's number becomes free.
pub(super) fn pause(first: u32) {
    signal(first, Signal::STOP);
    wait_until("postgres is stopped", READY_WITHIN, || read(first).is_none_or(|it| !it.runs()));
    for child in children(first) {
        signal(child.pid, Signal::STOP);
    }
    wait_until("its children are stopped", READY_WITHIN, || children(first).all(|child| !child.runs()));
}

/// Lets them all go on, the first one last.
pub(super) fn cont(first: u32) {
    for child in children(first) {
        signal(child.pid, Signal::CONT);
    }
    signal(first, Signal::CONT);
}

/// Kills the children and returns when they have left the shared memory; before that no new server would start. The first
/// one is stopped after that, and sees nothing of it.
pub(super) fn kill_children(first: u32) {
    pause(first);
    for child in children(first) {
        signal(child.pid, Signal::KILL);
    }
    wait_until("its children are dead", READY_WITHIN, || children(first).all(|child| child.state == 'Z'));
}

/// Removes what a server in this folder leaves when it is killed: memory that belongs to no process, and children that were
/// stopped and so could not see that the first one died.
pub(in crate::servers) fn clean_up(folder: &Path) {
    let data = folder.join("data");
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else { return };
    for left in
        processes().filter(|it| fs::read_link(format!("/proc/{}/cwd", it.pid)).is_ok_and(|cwd| cwd == data))
    {
        signal(left.pid, Signal::KILL);
    }
    let Some(memory) = text.lines().nth(6).map(KeyAndNumber::read) else { return };
    // The number may long be that of another's memory: of its key, too, and with nobody using it, it is ours.
    let all = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let is_ours =
        |line: &str| KeyAndNumber::read(line) == memory && line.split_whitespace().nth(6) == Some("0");
    if all.lines().any(is_ours) {
        let _ = Command::new("ipcrm").args(["-m", memory.1]).output();
    }
}

/// What shared memory is known by: the first two words of a line, both here and with the system.
#[derive(PartialEq)]
struct KeyAndNumber<'a>(&'a str, &'a str);

impl<'a> KeyAndNumber<'a> {
    fn read(line: &'a str) -> Self {
        let mut words = line.split_whitespace();
        Self(words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }
}

struct Process {
    pid: u32,
    parent: u32,
    state: char,
}

impl Process {
    fn runs(&self) -> bool {
        matches!(self.state, 'R' | 'S' | 'D')
    }
}

fn children(first: u32) -> impl Iterator<Item = Process> {
    processes().filter(move |process| process.parent == first)
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
}

fn read(pid: u32) -> Option<Process> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, in which there may be anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some(Process { pid, state, parent: fields.next()?.parse().ok()? })
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Somebody who is gone needs no signal.
        let _ = kill_process(pid, signal);
    }
}
