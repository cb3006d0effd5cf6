//! A disk in memory that forgets what was not synced.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use duly_core::schedule::Random;
use duly_stores::embedded::disk::{Disk, DiskFile};

use super::sectors::{Mercy, Sectors};

/// A disk in memory. Clones are the same disk.
///
/// Bytes are durable after [`DiskFile::sync`], names after [`Disk::sync_dir`] and not before: also not those of a file
/// that was synced itself.
#[derive(Clone, Default)]
pub struct PowerDisk(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<DiskState>,
    /// Syncs are held no longer.
    held: Condvar,
}

/// What becomes of syncs of files.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Syncs {
    #[default]
    Free,
    Blocked,
    Fail,
}

#[derive(Clone, Default)]
struct DiskState {
    files: Vec<Sectors>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced: Vec<Naming>,
    locked: bool,
    /// Changes made so far.
    changes: u64,
    /// After so many changes the disk is off.
    off_after: Option<u64>,
    /// After so many syncs, one fails.
    bad_sync_after: Option<u64>,
    syncs: u64,
    gate: Syncs,
    /// Bytes that all files together may have.
    room: Option<usize>,
    /// Bytes read since so many were last written, and the most there were of them.
    unwritten: usize,
    unwritten_max: usize,
}

#[derive(Clone)]
enum Naming {
    Made(PathBuf, usize),
    Renamed(PathBuf, PathBuf, usize),
    Removed(PathBuf),
}

fn off() -> io::Error {
    io::Error::other("the power is gone")
}

impl DiskState {
    fn is_off(&self) -> bool {
        self.off_after.is_some_and(|after| self.changes > after)
    }

    /// Counts a change. The one during which the power goes is begun, and nobody hears of its end.
    fn change(&mut self) -> io::Result<bool> {
        if self.is_off() {
            return Err(off());
        }
        self.changes += 1;
        Ok(!self.is_off())
    }

    fn free(&self) -> usize {
        let used: usize = self.names.values().map(|file| self.files[*file].now.len()).sum();
        self.room.map_or(usize::MAX, |room| room.saturating_sub(used))
    }
}

impl PowerDisk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes were made: writes, syncs, namings.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// The power goes during the change after `changes` more: that one may be half done, and everything later fails.
    pub fn off_after(&self, changes: u64) {
        let mut state = self.state();
        state.off_after = Some(state.changes + changes);
    }

    /// The sync after `syncs` more fails, and nothing of what it should have covered is durable, also not by a later sync:
    /// the operating system counts it as written. It is read back until the machine stops.
    pub fn fail_sync_after(&self, syncs: u64) {
        let mut state = self.state();
        state.bad_sync_after = Some(state.syncs + syncs);
    }

    /// Every sync of a file waits from now on, until [`release`](Self::release) or [`fail_held`](Self::fail_held).
    pub fn hold_syncs(&self) {
        self.state().gate = Syncs::Blocked;
    }

    /// Lets held syncs go on.
    pub fn release(&self) {
        self.state().gate = Syncs::Free;
        self.0.held.notify_all();
    }

    /// Lets held syncs fail, and all later ones.
    pub fn fail_held(&self) {
        self.state().gate = Syncs::Fail;
        self.0.held.notify_all();
    }

    /// The disk as the next process finds it if only this one ended: everything written can be read, and what was not
    /// synced is still not.
    pub fn survive(&self) -> Self {
        let state =
            DiskState { locked: false, off_after: None, bad_sync_after: None, ..self.state().clone() };
        Self(Arc::new(Inner { state: Mutex::new(state), held: Condvar::new() }))
    }

    /// All files together may have `bytes` from now on; `None`: as many as they like.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    /// Counts from now on what is read and not written again.
    pub fn count_unwritten(&self) {
        let mut state = self.state();
        (state.unwritten, state.unwritten_max) = (0, 0);
    }

    /// The most bytes that were read and not written again, at any time since they are counted: who writes what it reads has as many
    /// in memory.
    pub fn unwritten_max(&self) -> usize {
        self.state().unwritten_max
    }

    /// Bytes of all files.
    pub fn used(&self) -> usize {
        let state = self.state();
        state.names.values().map(|file| state.files[*file].now.len()).sum()
    }

    /// The disk as a power cut at this moment leaves it; which of the unsynced sectors and names are left is drawn from
    /// `seed`. This one goes on.
    pub fn cut(&self, seed: u64) -> Self {
        let state = self.state();
        let mut random = Random::new(seed);
        let mercy = Mercy::draw(&mut random);
        let mut names = state.synced_names.clone();
        for naming in &state.unsynced {
            if mercy.spares(&mut random) {
                apply(&mut names, naming);
            }
        }
        let files = state.files.iter().map(|file| file.cut(&mut random)).collect();
        let left = DiskState { files, synced_names: names.clone(), names, ..DiskState::default() };
        Self(Arc::new(Inner { state: Mutex::new(left), held: Condvar::new() }))
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, naming: &Naming) {
    match naming {
        Naming::Made(path, file) => {
            names.insert(path.clone(), *file);
        }
        Naming::Renamed(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        Naming::Removed(path) => {
            names.remove(path);
        }
    }
}

impl Disk for PowerDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let file = match state.names.get(path) {
            Some(file) => *file,
            None => {
                let done = state.change()?;
                state.files.push(Sectors::default());
                let file = state.files.len() - 1;
                state.names.insert(path.to_owned(), file);
                state.unsynced.push(Naming::Made(path.to_owned(), file));
                if !done {
                    return Err(off());
                }
                file
            }
        };
        Ok(Arc::new(PowerFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let done = state.change()?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        state.unsynced.push(Naming::Renamed(from.to_owned(), to.to_owned(), file));
        if done { Ok(()) } else { Err(off()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let done = state.change()?;
        state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        state.unsynced.push(Naming::Removed(path.to_owned()));
        if done { Ok(()) } else { Err(off()) }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        if state.is_off() {
            return Err(off());
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.change()? {
            return Err(off());
        }
        let state = &mut *state;
        state.unsynced.drain(..).for_each(|naming| apply(&mut state.synced_names, &naming));
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.state();
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock(self.clone())))
    }
}

struct Lock(PowerDisk);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

struct PowerFile {
    disk: PowerDisk,
    file: usize,
}

impl DiskFile for PowerFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.change()?;
        let at = offset as usize;
        let len = state.files[self.file].now.len();
        let room = (len.saturating_sub(at)).saturating_add(state.free());
        let fits = bytes.len().min(room.saturating_sub(at.saturating_sub(len)));
        state.unwritten = state.unwritten.saturating_sub(fits);
        if fits > 0 {
            state.files[self.file].write(&bytes[..fits], at);
        }
        match (done, fits == bytes.len()) {
            (false, _) => Err(off()),
            // As a file system does it: what fits is written, and then comes the error.
            (true, false) => Err(io::ErrorKind::StorageFull.into()),
            (true, true) => Ok(()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        if state.is_off() {
            return Err(off());
        }
        let bytes = &state.files[self.file].now;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        state.unwritten += n;
        state.unwritten_max = state.unwritten_max.max(state.unwritten);
        Ok(n)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if !state.change()? {
            return Err(off());
        }
        state.syncs += 1;
        if state.gate == Syncs::Blocked {
            let is_blocked = |state: &mut DiskState| state.gate == Syncs::Blocked;
            state = self.disk.0.held.wait_while(state, is_blocked).unwrap_or_else(PoisonError::into_inner);
        }
        if state.gate == Syncs::Fail || state.bad_sync_after.is_some_and(|after| state.syncs == after + 1) {
            state.files[self.file].forget_unsynced();
            return Err(io::Error::other("the disk has a bad sector"));
        }
        state.files[self.file].sync();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.file].now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.change()?;
        state.files[self.file].set_len(len as usize);
        if done { Ok(()) } else { Err(off()) }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let from = self.len()?;
        if from < len {
            self.write_at(&vec![0; (len - from) as usize], from)?;
        }
        self.sync()
    }
}
