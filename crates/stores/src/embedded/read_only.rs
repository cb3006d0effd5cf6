//! A disk for reading a data folder without changing a byte of it.
//!
//! Opening a store writes: it cuts a torn frame, lays down a segment, makes a checkpoint. With this disk all writes stay in
//! memory and are dropped with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    backup::UNSOUND,
    disk::{Disk, DiskFile},
};

/// Bytes of a page: a page of which one byte was written is kept in memory.
const PAGE: u64 = 4096;

/// Reads files and keeps in memory what is written to them.
#[derive(Default)]
pub(super) struct ReadOnlyDisk {
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    /// Files that were opened, made or got another name.
    open: BTreeMap<PathBuf, Arc<Overlay>>,
    removed: BTreeSet<PathBuf>,
}

struct Overlay {
    under: Option<File>,
    over: Mutex<Over>,
}

struct Over {
    pages: BTreeMap<u64, Box<[u8]>>,
    len: u64,
    /// Bytes of the file below that count.
    under_len: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Overlay {
    fn new(under: Option<File>) -> io::Result<Self> {
        let len = under.as_ref().map_or(Ok(0), |file| file.metadata().map(|known| known.len()))?;
        Ok(Self { under, over: Mutex::new(Over { pages: BTreeMap::new(), len, under_len: len }) })
    }

    /// A page as it is in the file below; zeros beyond its end.
    fn page_below(&self, over: &Over, page: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; PAGE as usize];
        let begin = page * PAGE;
        let there = over.under_len.saturating_sub(begin).min(PAGE) as usize;
        if let Some(file) = self.under.as_ref().filter(|_| there > 0) {
            file.read_exact_at(&mut bytes[..there], begin)?;
        }
        Ok(bytes.into())
    }
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = locked(&self.names);
        if let Some(file) = names.open.get(path) {
            return Ok(file.clone());
        }
        let under = match File::open(path) {
            _ if names.removed.contains(path) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let file = Arc::new(Overlay::new(under)?);
        names.removed.remove(path);
        names.open.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.open(from)?;
        let mut names = locked(&self.names);
        if let Some(file) = names.open.remove(from) {
            names.open.insert(to.to_owned(), file);
        }
        names.removed.insert(from.to_owned());
        names.removed.remove(to);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = locked(&self.names);
        let was_open = names.open.remove(path).is_some();
        let is_new = names.removed.insert(path.to_owned());
        if was_open || (is_new && path.exists()) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = locked(&self.names);
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            // A check must be able to read a copy that is marked as unsound, to say what is wrong with it.
            if !names.removed.contains(&entry.path()) && entry.file_name() != UNSOUND {
                found.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        let own = names.open.keys().filter(|path| path.parent() == Some(dir));
        found.extend(own.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())));
        Ok(found.into_iter().collect())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Takes no lock: the caller makes sure that nobody writes, and a check must not keep a server from starting.
    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        std::fs::metadata(dir)?;
        Ok(Box::new(()))
    }
}

impl DiskFile for Overlay {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut over = locked(&self.over);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE, (at % PAGE) as usize);
            if !over.pages.contains_key(&page) {
                let below = self.page_below(&over, page)?;
                over.pages.insert(page, below);
            }
            let n = (PAGE as usize - within).min(bytes.len() - done);
            if let Some(kept) = over.pages.get_mut(&page) {
                kept[within..within + n].copy_from_slice(&bytes[done..done + n]);
            }
            done += n;
        }
        over.len = over.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let over = locked(&self.over);
        let there = over.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE, (at % PAGE) as usize);
            let n = (PAGE as usize - within).min(there - done);
            let part = &mut buffer[done..done + n];
            match over.pages.get(&page) {
                Some(kept) => part.copy_from_slice(&kept[within..within + n]),
                None => part.copy_from_slice(&self.page_below(&over, page)?[within..within + n]),
            }
            done += n;
        }
        Ok(there)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.over).len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut over = locked(&self.over);
        if len < over.len {
            // Bytes that were cut off read as zeros if the file grows again.
            let last = len / PAGE;
            let mut edge = match over.pages.remove(&last) {
                Some(kept) => kept,
                None => self.page_below(&over, last)?,
            };
            edge[(len % PAGE) as usize..].fill(0);
            drop(over.pages.split_off(&last));
            over.pages.insert(last, edge);
            over.under_len = over.under_len.min(len);
        }
        over.len = len;
        Ok(())
    }

    /// Memory is not taken before it is written.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut over = locked(&self.over);
        over.len = over.len.max(len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_the_files_stay_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let disk = ReadOnlyDisk::default();
        let file = disk.open(&path).unwrap();
        file.write_at(b"over", 4_094).unwrap();
        let mut read = vec![0; 10];
        assert_eq!(file.read_at(&mut read, 4_092).unwrap(), 10);
        let mut expected = bytes[4_092..4_102].to_vec();
        expected[2..6].copy_from_slice(b"over");
        assert_eq!(read, expected);
        file.set_len(5_000).unwrap();
        file.set_len(6_000).unwrap();
        assert_eq!(file.read_at(&mut read, 4_995).unwrap(), 10);
        assert_eq!(read, [&bytes[4_995..5_000], &[0; 5]].concat());
        disk.rename(&path, &folder.path().join("b")).unwrap();
        disk.open(&folder.path().join("c")).unwrap().write_at(b"new", 0).unwrap();
        assert_eq!(disk.list(folder.path()).unwrap(), ["b", "c"]);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "on disk nothing has changed");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }
}
