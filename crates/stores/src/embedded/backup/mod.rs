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
//! The copy carries a [marker](MARKER) until it is whole and synced; a folder with it is not opened. A copy that fails is taken away again.

mod entries;
mod folder;
mod journal;
mod source;

use std::{collections::BTreeMap, io, path::Path};

use duly_core::store::{StoreError, StoreErrorKind};

pub(super) use self::folder::{UNSOUND, refusal};
pub use self::folder::{mark_sound, mark_unsound};
use self::{
    entries::Entries,
    folder::{MARKER, begin},
    source::Source,
};
use super::{
    claim_log::end_of_records,
    disk::{Disk, RealDisk},
    index::Position,
    manifest::{self, Manifest},
    table::{live_keys, read_entry},
};

/// After so many passes the folder changes faster than it can be copied.
const PASSES_MAX: usize = 100;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// The report of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Files in the copy.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How many passes over the folder were made: more than one if it changed meanwhile.
    pub passes: u64,
    /// Messages in the copy whose bytes do not match their checksums. They were so in the original.
    pub damaged: u64,
}

/// Copies the data folder `from` to `to`, which must be missing or empty.
///
/// The copy opens like the original and has everything that was accepted before the call; of what was accepted during
/// the call it may have a part. A server may have `from` open meanwhile. Files that do not fit together are an error, and nothing is left of the
/// copy; single messages whose bytes are damaged are copied and [counted](BackupReport::damaged). Blocks its thread.
pub fn backup(from: &Path, to: &Path) -> Result<BackupReport, StoreError> {
    backup_telling(from, to, &mut |_, _| {})
}

/// The same as [`backup`], and reports its progress: bytes copied, and bytes to copy as far as known by now.
pub fn backup_telling(
    from: &Path,
    to: &Path,
    report: &mut dyn FnMut(u64, u64),
) -> Result<BackupReport, StoreError> {
    let source = Source::new(from)?;
    let made = begin(from, to)?;
    let progress = Progress { copied: 0, total: 0, report };
    let mut copy = Copy { source, to, files: BTreeMap::new(), progress };
    copy.whole().inspect_err(|_| {
        copy.take_away();
        made.undo();
    })
}

fn failed(doing: impl std::fmt::Display) -> impl FnOnce(io::Error) -> StoreError {
    move |error| super::recover::io_error(&doing.to_string(), error)
}

/// How much of a file is copied.
#[derive(Default)]
struct Copied {
    len: u64,
    /// Of all of it.
    crc: u32,
    dirty: bool,
    /// Its entries, if it is the data of a table.
    entries: Entries,
}

/// A copy under way.
struct Copy<'a> {
    source: Source,
    to: &'a Path,
    files: BTreeMap<String, Copied>,
    progress: Progress<'a>,
}

/// How many bytes are copied, and whom to report it to.
struct Progress<'a> {
    copied: u64,
    /// As far as known by now.
    total: u64,
    report: &'a mut dyn FnMut(u64, u64),
}

impl Progress<'_> {
    fn add(&mut self, bytes: u64) {
        self.copied += bytes;
        (self.report)(self.copied, self.total.max(self.copied));
    }
}

/// Why a pass did not come to its end.
enum Stopped {
    /// A file of the manifest has changed or was removed: another pass, if there is a newer manifest.
    Outdated(StoreError),
    /// No other pass can succeed.
    Failed(StoreError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Copy<'_> {
    fn whole(&mut self) -> Result<BackupReport, StoreError> {
        let (whole, passes) = self.passes()?;
        let damaged = self.damaged(&whole)?;
        if damaged > 0 {
            // Before the copy is whole: a crash between the two must not leave one that opens.
            mark_unsound(self.to, &format!("{damaged} of its messages cannot be read."))?;
        }
        self.finish(&whole)?;
        let bytes = self.files.values().map(|file| file.len).sum();
        Ok(BackupReport { files: self.files.len() as u64 + 1, bytes, passes, damaged })
    }

    /// Messages that are alive in a table and cannot be read. Only tables that are known to have damage are read for it: it may be that of a message
    /// that is gone.
    fn damaged(&self, manifest: &Manifest) -> Result<u64, StoreError> {
        let mut count = 0;
        for line in &manifest.tables {
            let name = format!("table-{}.data", line.number);
            if !self.files.get(&name).is_some_and(|file| file.entries.is_damaged()) {
                continue;
            }
            let read = || -> io::Result<u64> {
                let data = RealDisk.open(&self.to.join(&name))?;
                let keys = std::fs::read(self.to.join(format!("table-{}.keys", line.number)))?;
                let mut count = 0;
                for key in live_keys(&keys) {
                    match read_entry(&*data, Position { file: line.number, off8: key.off8 }) {
                        Err(error) if error.kind() == io::ErrorKind::InvalidData => count += 1,
                        read => drop(read?),
                    }
                }
                Ok(count)
            };
            count += read().map_err(failed(format!("reading {name} of the copy")))?;
        }
        Ok(count)
    }

    /// Removes what was copied; the marker last, so that what cannot be removed is never taken for a copy.
    fn take_away(&self) {
        let names = self.files.keys().map(String::as_str).chain([manifest::NAME, manifest::NEW, UNSOUND]);
        let removed = names.map(|name| RealDisk.remove(&self.to.join(name))).all(|removed| match removed {
            Err(error) => error.kind() == io::ErrorKind::NotFound,
            Ok(()) => true,
        });
        if removed {
            // One that stays says that the copy is none.
            let _ = RealDisk.remove(&self.to.join(MARKER));
        }
    }

    /// Goes through the folder until it did not change meanwhile. Returns the manifest of the last pass.
    fn passes(&mut self) -> Result<(Manifest, u64), StoreError> {
        for pass in 1..=PASSES_MAX as u64 {
            let before = self.source.manifest()?;
            let done = self.pass(&before.manifest);
            let same = self.source.manifest()?.bytes == before.bytes;
            match done {
                Ok(()) if same => return Ok((before.manifest, pass)),
                Err(Stopped::Outdated(error)) if same => return Err(error),
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
        self.progress.total = self.progress.total.max(total);
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
                read.map_err(|error| Stopped::Outdated(source::damaged(name, error)))?;
                copy.write_at(bytes, known.len).map_err(failed(format!("writing {name}")))?;
                known.crc = crc32c::crc32c_append(known.crc, bytes);
                if crc.is_none() {
                    known.entries.take(bytes);
                }
                known.len += part as u64;
                known.dirty = true;
                self.progress.add(part as u64);
            }
        }
        if crc.is_some_and(|crc| crc != known.crc) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its checksum is not the manifest's");
            return Err(Stopped::Outdated(source::damaged(name, error)));
        }
        Ok(())
    }

    /// Writes a file of the copy again.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let known = self.files.entry(name.to_owned()).or_default();
        let put = RealDisk.open(&self.to.join(name)).and_then(|file| {
            file.set_len(bytes.len() as u64)?;
            file.write_at(bytes, 0)
        });
        put.map_err(failed(format!("writing {name}")))?;
        *known = Copied { len: bytes.len() as u64, dirty: true, ..Copied::default() };
        self.progress.add(bytes.len() as u64);
        Ok(())
    }

    /// Copies the logs of claims, without the zeros that were laid down ahead.
    fn claims(&mut self, first: u32) -> Result<(), Stopped> {
        for number in self.source.numbered("claims")?.into_iter().filter(|number| *number >= first) {
            let name = format!("claims-{number}");
            let bytes = self.source.read(&name)?;
            self.put(&name, &bytes[..end_of_records(&bytes) as usize])?;
        }
        Ok(())
    }

    /// Before another pass: tables and slices are kept, the rest is copied again.
    fn forget_old(&mut self) -> Result<(), StoreError> {
        let new = self.source.manifest()?.manifest;
        let keeps = |name: &str| {
            let of = |prefix: &str| super::recover::numbered(&[name.to_owned()], prefix).first().copied();
            of("table").is_some_and(|number| new.tables.iter().any(|line| line.number == number))
                || of("ended").is_some_and(|number| new.slices.iter().any(|line| line.number == number))
        };
        let outdated: Vec<String> = self.files.keys().filter(|name| !keeps(name)).cloned().collect();
        for name in outdated {
            self.files.remove(&name);
            match RealDisk.remove(&self.to.join(&name)) {
                // It was removed from the source before anything of it was copied.
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
