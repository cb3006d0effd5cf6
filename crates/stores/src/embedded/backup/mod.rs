//! Copying a data folder that a server has open, or one that stands still.
//!
//! The source is only read. What makes that safe while the store works on it:
//!
//! * Tables and slices only grow, and the manifest says how much of them counts: that much is copied.
//! * Nothing that a manifest names is removed or used again before the next manifest is in its place. So if the manifest is
//!   the same after the copy as before it, everything copied belonged together. If it is not, another pass copies what is new:
//!   each is shorter than the one before.
//! * The journal is copied as whole frames in the order of their numbers, as far as they follow each other without a gap.
//!   A frame is on disk before anybody is answered, so that whatever was answered before the backup began is in it.
//! * Claims are copied as they come: one that is missing means that the message waits, one too many that its lease must end first.
//!
//! The copy carries a [marker](MARKER) until it is whole and synced; a folder with it is not opened.

mod journal;
mod source;

use std::{collections::BTreeMap, io, path::Path};

use duly_core::store::{StoreError, StoreErrorKind};

use self::source::Source;
use super::{
    disk::{self, Disk, RealDisk},
    manifest::{self, Manifest},
};

/// A folder with this file in it is a copy that was not finished.
pub(super) const MARKER: &str = "backup-unfinished";
/// After so many passes the folder changes faster than it can be copied.
const PASSES_MAX: usize = 100;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// What a backup copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Files in the copy.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How often the folder was gone through: more than once if it changed meanwhile.
    pub passes: u64,
}

/// Copies the data folder `from` to `to`, which must be missing or empty.
///
/// The copy opens like the original and has everything that was accepted before the call; of what was accepted during
/// the call it may have a part. A server may have `from` open meanwhile. Blocks its thread.
pub fn backup(from: &Path, to: &Path) -> Result<BackupReport, StoreError> {
    backup_telling(from, to, &mut |_, _| {})
}

/// The same, telling how far it is: bytes copied, and bytes to copy as far as known by now.
pub fn backup_telling(
    from: &Path,
    to: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<BackupReport, StoreError> {
    let source = Source::new(from)?;
    begin(from, to)?;
    let mut copy = Copy { source, to, files: BTreeMap::new(), told: (0, 0), tell };
    let (whole, passes) = copy.passes()?;
    copy.finish(&whole)?;
    let bytes = copy.files.values().map(|file| file.len).sum();
    Ok(BackupReport { files: copy.files.len() as u64 + 1, bytes, passes })
}

fn failed(doing: impl std::fmt::Display) -> impl FnOnce(io::Error) -> StoreError {
    move |error| super::recover::io_error(&doing.to_string(), error)
}

/// Makes the folder for the copy, and marks it as not finished.
fn begin(from: &Path, to: &Path) -> Result<(), StoreError> {
    let refused = |why: &str| {
        Err(StoreError::new(StoreErrorKind::Unavailable, format!("the folder {} {why}", to.display())))
    };
    let access = disk::make_private(to).map_err(failed(format!("making the folder {}", to.display())))?;
    access.warn(to);
    let paths = from.canonicalize().and_then(|from| Ok((from, to.canonicalize()?)));
    let (from, own) = paths.map_err(failed("finding the folders"))?;
    if own.starts_with(&from) {
        return refused("lies inside the data folder; choose one outside of it");
    }
    let names = RealDisk.list(to).map_err(failed(format!("listing the folder {}", to.display())))?;
    if names.iter().any(|name| name == MARKER) {
        return refused("holds a backup that was not finished; remove it and begin again");
    }
    if !names.is_empty() {
        return refused("is not empty; choose another");
    }
    let marked = RealDisk.open(&to.join(MARKER)).and_then(|file| file.sync());
    marked.and_then(|()| RealDisk.sync_dir(to)).map_err(failed(format!("writing {MARKER}")))?;
    // The folder's own name must be as durable as what is in it; one that is not ours to read was there before.
    let _ = own.ancestors().skip(1).try_for_each(|above| RealDisk.sync_dir(above));
    Ok(())
}

/// How much of a file is copied.
#[derive(Default)]
struct Copied {
    len: u64,
    /// Of all of it.
    crc: u32,
    dirty: bool,
}

/// A copy under way.
struct Copy<'a> {
    source: Source,
    to: &'a Path,
    files: BTreeMap<String, Copied>,
    told: (u64, u64),
    tell: &'a mut dyn FnMut(u64, u64),
}

/// Why a pass did not come to its end.
enum Stopped {
    /// What the manifest names is not there any more as it says: another pass, if there is another manifest.
    Gone(StoreError),
    /// For good.
    Failed(StoreError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Copy<'_> {
    /// Goes through the folder until it did not change meanwhile. Gives the manifest of the last pass.
    fn passes(&mut self) -> Result<(Manifest, u64), StoreError> {
        for pass in 1..=PASSES_MAX as u64 {
            let before = self.source.manifest()?;
            let done = self.pass(&before.manifest);
            let same = self.source.manifest()?.bytes == before.bytes;
            match done {
                Ok(()) if same => return Ok((before.manifest, pass)),
                Err(Stopped::Gone(error)) if same => return Err(error),
                Err(Stopped::Failed(error)) => return Err(error),
                _ => self.forget_old()?,
            }
        }
        let what = format!(
            "after {PASSES_MAX} passes the data folder still changes faster than it is copied; copy to a faster disk"
        );
        Err(StoreError::new(StoreErrorKind::Unavailable, what))
    }

    fn pass(&mut self, manifest: &Manifest) -> Result<(), Stopped> {
        let tables = manifest.tables.iter().map(|line| line.data_len + line.keys_len).sum::<u64>();
        let total = tables + manifest.slices.iter().map(|line| line.len).sum::<u64>();
        self.told.1 = self.told.1.max(total);
        for line in &manifest.tables {
            self.grow(&format!("table-{}.data", line.number), line.data_len, None)?;
            self.grow(&format!("table-{}.keys", line.number), line.keys_len, Some(line.keys_crc))?;
        }
        for line in &manifest.slices {
            self.grow(&format!("ended-{}", line.number), line.len, Some(line.crc))?;
        }
        self.claims(manifest.claims)?;
        self.journal(manifest)
    }

    /// Copies what a file has grown by since it was last copied, up to `len`.
    fn grow(&mut self, name: &str, len: u64, crc: Option<u32>) -> Result<(), Stopped> {
        let known = self.files.entry(name.to_owned()).or_default();
        if known.len < len || known.len == 0 {
            let from = self.source.open(name)?;
            let copy = RealDisk.open(&self.to.join(name)).map_err(failed(format!("writing {name}")))?;
            let mut chunk = vec![0; CHUNK.min((len - known.len) as usize)];
            while known.len < len {
                let part = CHUNK.min((len - known.len) as usize);
                let bytes = &mut chunk[..part];
                let read = std::os::unix::fs::FileExt::read_exact_at(&from, bytes, known.len);
                read.map_err(|error| Stopped::Gone(source::damaged(name, error)))?;
                copy.write_at(bytes, known.len).map_err(failed(format!("writing {name}")))?;
                known.crc = crc32c::crc32c_append(known.crc, bytes);
                known.len += part as u64;
                known.dirty = true;
                self.told.0 += part as u64;
                (self.tell)(self.told.0, self.told.1.max(self.told.0));
            }
        }
        if crc.is_some_and(|crc| crc != known.crc) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its checksum is not the manifest's");
            return Err(Stopped::Gone(source::damaged(name, error)));
        }
        Ok(())
    }

    /// Writes a file of the copy anew.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let known = self.files.entry(name.to_owned()).or_default();
        let put = RealDisk.open(&self.to.join(name)).and_then(|file| {
            file.set_len(bytes.len() as u64)?;
            file.write_at(bytes, 0)
        });
        put.map_err(failed(format!("writing {name}")))?;
        *known = Copied { len: bytes.len() as u64, crc: 0, dirty: true };
        self.told = (self.told.0 + bytes.len() as u64, self.told.1);
        (self.tell)(self.told.0, self.told.1.max(self.told.0));
        Ok(())
    }

    /// Copies the logs of claims, without the zeros that were laid down ahead.
    fn claims(&mut self, first: u32) -> Result<(), Stopped> {
        for number in self.source.numbered("claims")?.into_iter().filter(|number| *number >= first) {
            let name = format!("claims-{number}");
            let bytes = self.source.read(&name)?;
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            self.put(&name, &bytes[..len])?;
        }
        Ok(())
    }

    /// Before another pass: tables and slices are kept, the rest is copied anew.
    fn forget_old(&mut self) -> Result<(), StoreError> {
        let new = self.source.manifest()?.manifest;
        let keeps = |name: &str| {
            let of = |prefix: &str| super::recover::numbered(&[name.to_owned()], prefix).first().copied();
            of("table").is_some_and(|number| new.tables.iter().any(|line| line.number == number))
                || of("ended").is_some_and(|number| new.slices.iter().any(|line| line.number == number))
        };
        let gone: Vec<String> = self.files.keys().filter(|name| !keeps(name)).cloned().collect();
        for name in gone {
            self.files.remove(&name);
            match RealDisk.remove(&self.to.join(&name)) {
                // It was gone from the source before anything of it was copied.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(failed(format!("removing {name}")))?,
            }
        }
        Ok(())
    }

    /// Makes the copy durable, puts the manifest in its place, and only then takes the marker away.
    fn finish(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        for (name, _) in self.files.iter().filter(|(_, file)| file.dirty) {
            let synced = std::fs::File::open(self.to.join(name)).and_then(|file| file.sync_all());
            synced.map_err(failed(format!("syncing {name}")))?;
        }
        manifest::write(&RealDisk, self.to, manifest).map_err(failed("writing the manifest"))?;
        let unmarked = RealDisk.remove(&self.to.join(MARKER)).and_then(|()| RealDisk.sync_dir(self.to));
        unmarked.map_err(failed(format!("removing {MARKER}")))
    }
}
