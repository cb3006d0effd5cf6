//! Tells what a folder is by the names of its files, without opening it.

use std::{io, path::Path};

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    backup, disk, manifest,
    recover::{io_error, numbered},
};

/// The contents of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderContents {
    /// No store: opening it makes one. The folder may be missing.
    Nothing,
    /// A store.
    Store,
}

/// Looks at a folder as [`EmbeddedStore::open`](super::EmbeddedStore::open) does at first, and changes nothing. A folder that is refused for what it
/// is gives the same error here: a backup that was not finished or is not sound, or a journal without its manifest.
pub fn inspect(dir: &Path) -> Result<FolderContents, StoreError> {
    match disk::names(dir) {
        Ok(names) => contents(dir, &names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FolderContents::Nothing),
        Err(error) => Err(io_error(&format!("listing the data folder {}", dir.display()), error)),
    }
}

/// Classifies a folder by its files.
pub(super) fn contents(dir: &Path, names: &[String]) -> Result<FolderContents, StoreError> {
    let damaged = |what: String| Err(StoreError::new(StoreErrorKind::Damaged, what));
    if let Some(why) = backup::refusal(names) {
        return damaged(format!("{} {why}", dir.display()));
    }
    if names.iter().any(|name| name == manifest::NAME) {
        return Ok(FolderContents::Store);
    }
    if !numbered(names, "journal").is_empty() {
        return damaged("the data folder has a journal and no manifest; restore it from a backup".into());
    }
    Ok(FolderContents::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_at_a_folder_that_is_not_there_makes_none() {
        let above = tempfile::tempdir().unwrap();
        let missing = above.path().join("a/b");
        assert_eq!(inspect(&missing).unwrap(), FolderContents::Nothing);
        assert!(!above.path().join("a").exists());
        assert_eq!(inspect(above.path()).unwrap(), FolderContents::Nothing);
        std::fs::write(above.path().join("journal-1"), "").unwrap();
        assert!(inspect(above.path()).is_err(), "a journal without its manifest");
    }
}
