//! What the operating system says of this process and of the disk.

use std::{os::unix::fs::FileExt, path::Path, time::Duration};

/// Processor time used so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let fields: Vec<f64> =
        after_name.split(' ').skip(11).take(2).map(|field| field.parse().unwrap()).collect();
    // Linux counts in hundredths of a second on every machine that this runs on.
    (fields[0] + fields[1]) / 100.0
}

/// Memory in use, in megabytes of 10^6 bytes.
pub fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

/// The machine's load of the last minute: what else ran while this was measured.
pub fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Bytes of the files whose name begins with one of `kinds`.
pub fn disk_bytes(dir: &Path, kinds: &[&str]) -> u64 {
    let wanted = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            wanted(&entry.file_name().to_string_lossy())
                .then(|| entry.metadata().map_or(0, |data| data.len()))
        })
        .sum()
}

/// Raw appends of `bytes` bytes, each with its fdatasync, into a file whose blocks are written already: how long each took.
pub fn raw_appends(bytes: usize, count: usize) -> Vec<Duration> {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("raw")).unwrap();
    let room = (bytes * count).min(64 << 20).max(bytes);
    file.write_all_at(&vec![0; room], 0).unwrap();
    file.sync_all().unwrap();
    let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    let places = room / bytes;
    (0..count)
        .map(|n| {
            let start = now();
            file.write_all_at(&data, (n % places * bytes) as u64).unwrap();
            file.sync_data().unwrap();
            start.elapsed()
        })
        .collect()
}

/// A moment, for measuring.
pub fn now() -> std::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    std::time::Instant::now()
}
