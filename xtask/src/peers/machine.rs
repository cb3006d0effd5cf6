//! What a figure depends on besides the systems.

use std::{env, fs, process::Command, thread};

use crate::step::Steps;

/// The file systems in memory, by the number that Linux gives them.
const TMPFS: u64 = 0x0102_1994;

/// Where a sync costs nothing, durable systems look as fast as others.
pub(super) fn warn_of_memory_files(steps: &Steps) {
    let folder = env::temp_dir();
    let is_memory = rustix::fs::statfs(&folder).is_ok_and(|it| u64::try_from(it.f_type) == Ok(TMPFS));
    if is_memory {
        steps.note(format!(
            "{} is in memory, where a sync costs nothing: set TMPDIR to a disk",
            folder.display()
        ));
    }
}

/// The day, processors and load.
pub(super) fn describe() -> String {
    let day =
        Command::new("date").args(["-u", "+%F"]).output().map(|output| output.stdout).unwrap_or_default();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (processors, load) = (read("/proc/cpuinfo"), read("/proc/loadavg"));
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{}: {count} × {}; load at the end {}\n",
        String::from_utf8_lossy(&day).trim(),
        model.trim_start_matches([' ', '\t', ':']),
        load.split(' ').next().unwrap_or_default(),
    )
}
