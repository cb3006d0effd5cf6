//! A disk on which a test decides before a call what becomes of it.

use std::{io, ops::Range, path::Path, sync::Arc};

use super::{Disk, DiskFile};

/// What a test does before a call of a disk: nothing, wait, panic, or let it fail. Files are known by their names, without the folder.
pub trait Hooks: Send + Sync + 'static {
    /// Before a file is opened or made.
    fn open(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Before these bytes of a file are read.
    fn read(&self, _name: &str, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Before a file is written to.
    fn write(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Before a file is synced.
    fn sync(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }
}

/// A disk, and what is done before its calls.
pub struct HookedDisk {
    disk: Arc<dyn Disk>,
    hooks: Arc<dyn Hooks>,
}

impl HookedDisk {
    /// This disk with these hooks.
    pub fn on(disk: impl Disk + 'static, hooks: Arc<dyn Hooks>) -> Arc<Self> {
        Arc::new(Self { disk: Arc::new(disk), hooks })
    }
}

impl Disk for HookedDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.hooks.open(&name)?;
        Ok(Arc::new(HookedFile { file: self.disk.open(path)?, hooks: self.hooks.clone(), name }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(dir)
    }
}

struct HookedFile {
    file: Arc<dyn DiskFile>,
    hooks: Arc<dyn Hooks>,
    name: String,
}

impl DiskFile for HookedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.hooks.write(&self.name)?;
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.hooks.read(&self.name, offset..offset + buffer.len() as u64)?;
        self.file.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.hooks.sync(&self.name)?;
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
