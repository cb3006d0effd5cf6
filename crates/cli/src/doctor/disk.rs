//! The data folder: is it there, can it be written, is there room, and does a sync mean anything?

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use duly::Durability;

use super::{super::clock, Finding};

const CHECK: &str = "data folder";
/// Less than this fills up within minutes.
const FREE_FAIL: u64 = 64 << 20;
const FREE_WARN: u64 = 1 << 30;
/// A sync that takes longer holds up everybody who waits for "accepted".
const SYNC_WARN_MS: f64 = 20.0;
const SYNCS: usize = 32;

/// Facts about the data folder that later checks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folder {
    /// A server works on it now.
    Running,
    /// It is there and nobody works on it, or it will be made.
    Idle,
    /// It cannot be a data folder, or cannot be read.
    Unusable,
}

/// The state of the data folder.
pub(super) fn check(data: &Path, findings: &mut Vec<Finding>) -> Folder {
    let shown = data.display();
    let is_there = match is_usable(data) {
        Ok(is_there) => is_there,
        Err(finding) => {
            findings.push(finding);
            return Folder::Unusable;
        }
    };
    let folder = existing(data);
    let running = is_locked(data);
    findings.push(match (is_there, running) {
        (true, true) => Finding::ok(CHECK, format!("{shown} is in use by a server that runs now")),
        (true, false) => {
            open_to_others(data).unwrap_or_else(|| Finding::ok(CHECK, format!("{shown} is there")))
        }
        (false, _) => {
            Finding::ok(CHECK, format!("{shown} is not there yet and will be made in {}", folder.display()))
        }
    });
    let kind = file_system(&folder);
    findings.push(match kind {
        Some((name, remedy)) => {
            let detail = format!(
                "{} is on {name}: what is accepted may not survive what the disk would",
                folder.display()
            );
            Finding::warn("durability", detail, remedy)
        }
        None => Finding::ok("durability", Durability::Disk.to_string()),
    });
    findings.extend(free_space(&folder));
    findings.push(syncs(&folder));
    if running { Folder::Running } else { Folder::Idle }
}

/// Whether the folder is there. Fails if a server could not work on what is there.
fn is_usable(data: &Path) -> Result<bool, Finding> {
    match data.metadata() {
        Ok(known) if !known.is_dir() => {
            let remedy = "name a folder as data, or move the file away";
            Err(Finding::fail(CHECK, format!("{} is a file", data.display()), remedy))
        }
        Ok(_) => data.read_dir().map(|_| true).map_err(|error| unreadable(data, &error)),
        // A link to nothing is found, and what it names is not.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !data.is_symlink() => Ok(false),
        Err(error) => Err(unreadable(data, &error)),
    }
}

fn unreadable(data: &Path, error: &io::Error) -> Finding {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "give the folder to the user that runs Duly, or run this command as that user"
        }
        io::ErrorKind::NotADirectory => "a part of the path is a file: choose another folder as data",
        io::ErrorKind::NotFound => {
            "it is a link to nothing: make what it names, or choose another folder as data"
        }
        _ => "see what is at that path: `duly serve` could not read it either",
    };
    Finding::fail(CHECK, format!("{} cannot be read: {error}", data.display()), remedy)
}

/// The folder, or the nearest above it that is there.
fn existing(data: &Path) -> PathBuf {
    let above = data.ancestors().find(|path| path.is_dir());
    above.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Whether a server works on the folder now.
pub(super) fn is_locked(data: &Path) -> bool {
    // Opened without making it: a folder that nobody used yet stays as it is.
    let lock = OpenOptions::new().write(true).open(data.join("lock"));
    lock.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn open_to_others(data: &Path) -> Option<Finding> {
    let mode = data.metadata().ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        let could = match mode & 0o022 {
            0 => "entered by others, who could see what is there",
            _ => "written by others, who could change what is delivered",
        };
        let detail = format!("{} can be {could}", data.display());
        Finding::warn(CHECK, detail, format!("chmod 700 {}", data.display()))
    })
}

#[cfg(target_os = "linux")]
fn file_system(folder: &Path) -> Option<(&'static str, &'static str)> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type;
    let memory = "put data on a disk, unless losing everything at a restart is all right";
    let network =
        "put data on a disk of this machine: locks and syncs over a network are not to be relied on";
    match u32::try_from(kind & 0xffff_ffff).ok()? {
        0x0102_1994 => Some(("tmpfs, which is memory", memory)),
        0x8584_58f6 => Some(("ramfs, which is memory", memory)),
        0x794c_7630 => {
            Some(("an overlay, which goes with its container", "mount a volume and put data on it"))
        }
        0x6969 => Some(("NFS", network)),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some(("a Windows share", network)),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_place: &Path) -> Option<(&'static str, &'static str)> {
    None
}

fn free_space(folder: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(space(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

fn space(free: u64) -> Finding {
    let detail = format!("{} MiB are free", free >> 20);
    let remedy = "make room: when the disk is full nothing more is accepted";
    match free {
        0..FREE_FAIL => Finding::fail("disk space", format!("{detail}: not ready"), remedy),
        FREE_FAIL..FREE_WARN => Finding::warn("disk space", detail, remedy),
        _ => Finding::ok("disk space", detail),
    }
}

/// Writes and syncs as the journal does, and says how long that takes.
fn syncs(folder: &Path) -> Finding {
    match measure(folder) {
        Ok(median) => {
            let detail = format!("a write and its sync take {median:.2} ms (median of {SYNCS})");
            if median <= SYNC_WARN_MS {
                return Finding::ok("disk sync", detail);
            }
            let remedy = "use a quicker disk, or send in batches: a batch waits for one sync";
            Finding::warn("disk sync", detail, remedy)
        }
        Err(error) => not_written(folder, &error),
    }
}

fn not_written(folder: &Path, error: &io::Error) -> Finding {
    let (why, remedy) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ("not ready, the disk is full", "make room: nothing is accepted until there is some")
        }
        io::ErrorKind::FileTooLarge => (
            "not ready, this process may not write a file of that size",
            "raise the limit of file sizes (ulimit -f)",
        ),
        io::ErrorKind::ReadOnlyFilesystem => ("not ready, the disk is read-only", "mount it for writing"),
        _ => {
            ("it cannot be written", "give the folder to the user that runs Duly, or choose another as data")
        }
    };
    Finding::fail("disk sync", format!("{}: {why}: {error}", folder.display()), remedy)
}

fn measure(folder: &Path) -> io::Result<f64> {
    let mut file = tempfile::Builder::new().prefix(".duly-doctor-").tempfile_in(folder)?;
    let mut took = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begin = clock::instant();
        file.write_all(&[0; 4096])?;
        File::sync_data(file.as_file())?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[SYNCS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn states(data: &Path) -> (Vec<(String, Severity)>, Folder) {
        let mut findings = Vec::new();
        let folder = check(data, &mut findings);
        (findings.into_iter().map(|finding| (finding.check, finding.state)).collect(), folder)
    }

    #[test]
    fn a_folder_that_is_not_there_is_fine_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        let (states, found) = states(&data);
        assert!(states.contains(&(CHECK.into(), Severity::Ok)) && found == Folder::Idle, "{states:?}");
        assert!(!folder.path().join("a").exists());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "what was written to measure is gone");
    }

    #[test]
    fn a_file_in_place_of_the_folder_fails() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(states(file.path()), (vec![(CHECK.into(), Severity::Fail)], Folder::Unusable));
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_not_taken_for_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), b"").unwrap();
        for (link, to) in [("loop", "loop"), ("dangling", "nowhere")] {
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
        }
        for data in [at("file/data"), at("loop"), at("loop/data"), at("dangling")] {
            let found = states(&data);
            assert_eq!(found, (vec![(CHECK.into(), Severity::Fail)], Folder::Unusable), "{}", data.display());
        }
        let denied = unreadable(Path::new("data"), &io::ErrorKind::PermissionDenied.into());
        assert!(denied.detail.contains("cannot be read") && denied.remedy.unwrap().contains("that user"));
    }

    #[test]
    fn a_full_disk_is_not_ready() {
        for finding in [space(0), space(FREE_FAIL - 1), not_written(Path::new("data"), &full())] {
            assert!(finding.state == Severity::Fail && finding.detail.contains("not ready"), "{finding:?}");
            assert!(finding.remedy.unwrap().starts_with("make room"));
        }
        let denied = not_written(Path::new("data"), &io::ErrorKind::PermissionDenied.into());
        assert!(denied.remedy.unwrap().starts_with("give the folder"));
    }

    /// The error of a file system that is full.
    fn full() -> io::Error {
        let mut file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        file.write_all(b"x").unwrap_err()
    }

    #[test]
    fn a_running_server_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        assert_eq!(states(folder.path()).1, Folder::Idle);
        lock.lock().unwrap();
        let (states, found) = states(folder.path());
        assert!(found == Folder::Running && states.contains(&(CHECK.into(), Severity::Ok)), "{states:?}");
    }
}
