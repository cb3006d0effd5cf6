//! A process and all that it started, as /proc shows them.

use std::{collections::BTreeSet, fs};

/// The clock ticks of Linux, on every machine that this runs on.
const TICKS_PER_S: f64 = 100.0;

/// One line of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    state: char,
    ticks: u64,
}

/// The process of this number and its descendants, parents first.
pub(super) fn members(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut seen = BTreeSet::from([root]);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = all.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid);
        found.extend(children.filter(|pid| seen.insert(*pid)));
        next += 1;
    }
    found
}

/// Whether the process is there and no zombie.
pub(super) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != 'Z')
}

/// Seconds of processor time of the process, its descendants, and those that have ended.
pub(super) fn processor_s(root: u32) -> f64 {
    members(root).into_iter().filter_map(stat).map(|stat| stat.ticks as f64).sum::<f64>() / TICKS_PER_S
}

/// Bytes of memory of the process and its descendants.
pub(super) fn resident_bytes(root: u32) -> u64 {
    members(root).into_iter().filter_map(resident).sum()
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn stat(pid: u32) -> Option<Stat> {
    read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of the program, in brackets, may have anything in it.
fn read(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
    // Of itself in user and kernel mode, and of its children that have ended.
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Stat { state: fields.first()?.chars().next()?, parent: fields.get(1)?.parse().ok()?, ticks })
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn a_line_of_stat_is_read_past_the_name() {
        let stat = read("7 (a) b) S 3 7 7 0 -1 4194560 1 2 0 0 10 20 30 40 20 0 1 0").unwrap();
        assert_eq!((stat.parent, stat.state, stat.ticks), (3, 'S', 100));
        assert!(read("7 (a").is_none());
    }

    #[test]
    fn the_members_of_a_process_begin_with_itself() {
        assert_eq!(members(process::id())[0], process::id());
        assert!(is_alive(process::id()) && resident_bytes(process::id()) > 0);
    }
}
