//! The file layer: what the store needs of a file system.
//!
//! All file access goes through these two traits, so that tests can use a disk that loses unsynced bytes, is full, or fails a
//! sync.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A folder's worth of files.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file for reading and writing, making it if it is missing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file and replaces what had the name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names of the files in a folder, making the folder if it is missing.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes names durable: creations, renames and removals in the folder.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks the folder for this process, until the returned guard is dropped.
    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// One open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Makes the bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// How long the file is.
    fn len(&self) -> io::Result<u64>;
    /// Makes it exactly so long.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Takes room for `len` bytes, so that writing them cannot run out of it.
    fn allocate(&self, len: u64) -> io::Result<()>;
}

/// A failed sync, and what the system said.
#[derive(Debug)]
struct SyncFailed(io::Error);

impl fmt::Display for SyncFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a sync failed: {}", self.0)
    }
}

impl std::error::Error for SyncFailed {}

/// The error of a failed sync. It is not known what is on disk, and another sync proves nothing, even after room was made.
pub(super) fn beyond_repair(error: io::Error) -> io::Error {
    io::Error::other(SyncFailed(error))
}

/// What the system said about a sync that failed, if that is the error.
pub(super) fn cause_of_failed_sync(error: &io::Error) -> Option<&io::Error> {
    error.get_ref()?.downcast_ref().map(|SyncFailed(cause)| cause)
}

/// The machine's own file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

struct RealFile(File);

/// Only the user who runs the process may read message bodies.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Makes a folder that only this user can enter. A folder that exists keeps its mode and group: they may be on purpose.
/// New folders above it get the usual mode. Returns whether other users can enter it.
pub(super) fn make_private(dir: &Path) -> io::Result<Access> {
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(FOLDER_MODE).create(dir) {
        Err(error) if !dir.is_dir() => return Err(error),
        _ => {}
    }
    let mode = std::fs::metadata(dir)?.permissions().mode();
    Ok(if mode & OTHERS == 0 { Access::Private } else { Access::Open(mode & 0o777) })
}

/// The names of all files in a folder that exists.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Who can enter a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The user who runs the process.
    Private,
    /// Others, too: its mode.
    Open(u32),
}

impl Access {
    /// Tells the log if others can enter the folder.
    pub(super) fn warn(self, dir: &Path) {
        if let Self::Open(mode) = self {
            let (folder, mode) = (dir.display(), format!("{mode:o}"));
            tracing::warn!(%folder, mode, "data folder is open to other users; run chmod 700 on it");
        }
    }
}

/// Opens a file for writing, making it if it is missing, for nobody else to read.
fn open_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    // A file that was copied here may have another mode. If this user may not change it, the mode of the folder still protects it.
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        let _ = file.set_permissions(PermissionsExt::from_mode(FILE_MODE));
    }
    Ok(file)
}

/// How many zero bytes one write lays down while room is being taken.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(open_private(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        make_private(dir)?;
        names(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let is_new = !dir.exists();
        make_private(dir)?.warn(dir);
        if is_new {
            // The name of the folder must be durable as well, and those of new folders above it.
            for above in dir.ancestors().skip(1) {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                if File::open(above).and_then(|folder| folder.sync_all()).is_err() {
                    // This user may not read it, so it was there before.
                    break;
                }
            }
        }
        let path: PathBuf = dir.join("lock");
        let file = open_private(&path)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => io::Error::from(io::ErrorKind::WouldBlock),
            std::fs::TryLockError::Error(error) => error,
        })?;
        Ok(Box::new(file))
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    /// Writes zeros instead of reserving blocks: a later sync into written blocks need not write the file system's own journal.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut at = self.len()?;
        while at < len {
            let n = ZEROS.len().min((len - at) as usize);
            self.0.write_all_at(&ZEROS[..n], at)?;
            at += n as u64;
        }
        self.0.sync_all()
    }
}
