//! The folder for temporary files of tests.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// A file system in memory. Tests start some hundred servers that all write and sync: on a disk, half of the time of two processors
/// goes to that. What a killed process wrote is kept there as on a disk.
const IN_MEMORY: &str = "/dev/shm";
/// With less than this free, the servers of several tests may find no room.
const FREE_MIN: u64 = 8 << 30;

/// A folder of its own, which is removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let is_roomy = free(Path::new(IN_MEMORY)).is_some_and(|free| free >= FREE_MIN);
        let parent = if is_roomy { PathBuf::from(IN_MEMORY) } else { env::temp_dir() };
        let folder = parent.join(format!("duly-tests-{}", process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left costs room, and no test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The bytes that are free on the file system of `folder`, if it is there.
fn free(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_with_what_is_in_it() {
        let scratch = Scratch::new().unwrap();
        let folder = scratch.folder().to_owned();
        fs::write(folder.join("left"), "x").unwrap();
        drop(scratch);
        assert!(!folder.exists());
    }
}
