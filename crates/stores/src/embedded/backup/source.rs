//! The folder that is copied. Nothing here can write to it.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    super::{
        disk::Disk,
        manifest::{self, Manifest},
        recover,
    },
    Stopped, failed,
};

/// A data folder, opened for reading only.
pub(super) struct Source(PathBuf);

/// A manifest, and the bytes that it was read from.
pub(super) struct Read {
    pub(super) manifest: Manifest,
    pub(super) bytes: Vec<u8>,
}

/// Something of the folder is not as its manifest says.
pub(super) fn damaged(name: &str, error: io::Error) -> StoreError {
    let what = format!("{name} cannot be copied: {error}; the data folder is damaged");
    StoreError::new(StoreErrorKind::Damaged, what).with_source(error)
}

impl Source {
    pub(super) fn new(folder: &Path) -> Result<Self, StoreError> {
        let what = match folder.join(manifest::NAME).try_exists() {
            Ok(true) => match super::refusal(&super::RealDisk.list(folder).unwrap_or_default()) {
                None => return Ok(Self(folder.to_owned())),
                Some(why) => why,
            },
            Ok(false) => "is no data folder: it has no manifest".into(),
            Err(error) => return Err(failed(format!("reading {}", folder.display()))(error)),
        };
        Err(StoreError::new(StoreErrorKind::Unavailable, format!("{} {what}", folder.display())))
    }

    /// The manifest as it is now. In it, the next number for a file is past all that are in use, so that the copy gives
    /// out no token that the original gave out.
    pub(super) fn manifest(&self) -> Result<Read, StoreError> {
        let bytes = std::fs::read(self.0.join(manifest::NAME)).map_err(failed("reading the manifest"))?;
        let mut manifest = manifest::parse(&bytes).map_err(failed("reading the manifest"))?;
        let used = recover::KINDS.iter().map(|kind| Ok(self.numbered(kind)?.last().copied().unwrap_or(0)));
        let used: Vec<u32> = used.collect::<Result<_, StoreError>>()?;
        manifest.next_file = used.into_iter().fold(manifest.next_file, u32::max);
        Ok(Read { manifest, bytes })
    }

    /// The numbers of the files of a kind, ascending.
    pub(super) fn numbered(&self, kind: &str) -> Result<Vec<u32>, StoreError> {
        let names: io::Result<Vec<String>> = std::fs::read_dir(&self.0).and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        });
        Ok(recover::numbered(&names.map_err(failed("listing the data folder"))?, kind))
    }

    pub(super) fn open(&self, name: &str) -> Result<File, Stopped> {
        File::open(self.0.join(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Stopped::Outdated(damaged(name, error)),
            _ => Stopped::Failed(failed(format!("reading {name}"))(error)),
        })
    }

    /// A whole file.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Stopped> {
        let mut bytes = Vec::new();
        let mut file = self.open(name)?;
        io::Read::read_to_end(&mut file, &mut bytes).map_err(failed(format!("reading {name}")))?;
        Ok(bytes)
    }
}
