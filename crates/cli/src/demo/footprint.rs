//! What the demo takes of the machine.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// What one message takes on disk at most, for a moment: in the journal, and in the table that is made from it.
const MESSAGE_BYTES_MAX: u64 = 512;
/// One part of so many of what is free is the demo's.
const FREE_PARTS: u64 = 4;

/// How many messages the disk of a folder has room for, with plenty left for others.
pub(super) fn messages_max(folder: &Path) -> u64 {
    let free = rustix::fs::statvfs(folder).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    // A file system that does not say is no reason to leave the demo out.
    free.map_or(u64::MAX, |free| free / FREE_PARTS / MESSAGE_BYTES_MAX)
}

/// Bytes that the files below a folder take on disk. What is removed meanwhile counts as nothing.
pub(super) fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

/// The most memory that this process had at a time, where the system tells.
pub(super) fn memory_bytes_max() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_below_count() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        assert_eq!(disk_bytes(folder.path()), 0);
        for name in ["one", "below/two"] {
            fs::write(folder.path().join(name), vec![b'x'; 100_000]).unwrap();
        }
        assert!(disk_bytes(folder.path()) >= 200_000);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_read() {
        assert!(memory_bytes_max().unwrap() > 1_000_000);
    }
}
