//! A disk on which reads of tables fail, or wait at a gate.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::ThreadId,
};

use duly_stores::embedded::disk::{Disk, DiskFile, RealDisk};
use tokio::sync::Notify;

#[derive(Default)]
struct Shared {
    /// The thread whose reads fail.
    fails_for: Mutex<Option<ThreadId>>,
    failed: AtomicUsize,
    /// Reads that still pass; `None`: all of them.
    passes: Mutex<Option<usize>>,
    opened: Condvar,
    reached: Notify,
}

/// The machine's own disk, behind a gate.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<Shared>);

struct GatedFile {
    file: Arc<dyn DiskFile>,
    shared: Arc<Shared>,
    is_table: bool,
}

impl Gate {
    /// Whether reads of tables by this thread fail from now on. The store's own threads read what they want.
    pub(super) fn fail_reads(&self, fails: bool) {
        *self.0.fails_for.lock().unwrap() = fails.then(|| std::thread::current().id());
    }

    /// How many reads have failed.
    pub(super) fn failed(&self) -> usize {
        self.0.failed.load(Ordering::SeqCst)
    }

    /// Lets so many more reads of tables pass, and then none.
    pub(super) fn close_after(&self, reads: usize) {
        *self.0.passes.lock().unwrap() = Some(reads);
    }

    /// Waits until somebody stands at the gate.
    pub(super) async fn reached(&self) {
        self.0.reached.notified().await;
    }

    pub(super) fn open(&self) {
        *self.0.passes.lock().unwrap() = None;
        self.0.opened.notify_all();
    }
}

impl DiskFile for GatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.is_table {
            if *self.shared.fails_for.lock().unwrap() == Some(std::thread::current().id()) {
                self.shared.failed.fetch_add(1, Ordering::SeqCst);
                return Err(io::Error::other("the disk does not answer"));
            }
            let mut passes = self.shared.passes.lock().unwrap();
            while *passes == Some(0) {
                self.shared.reached.notify_one();
                passes = self.shared.opened.wait(passes).unwrap();
            }
            *passes = passes.map(|left| left - 1);
        }
        self.file.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
}

impl Disk for Gate {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let is_table = path.extension().is_some_and(|extension| extension == "data");
        Ok(Arc::new(GatedFile { file: RealDisk.open(path)?, shared: self.0.clone(), is_table }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealDisk.lock(dir)
    }
}
