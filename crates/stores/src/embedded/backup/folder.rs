//! The folder that a copy goes to: made, marked, and taken away again if nothing comes of it.

use std::path::{Path, PathBuf};

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    super::disk::{self, Disk, RealDisk},
    failed,
};

/// A folder with this file in it is a copy that was not finished.
pub(in crate::embedded) const MARKER: &str = "backup-unfinished";
/// A folder with this file in it is a copy that cannot be read in full. The file says why.
pub(in crate::embedded) const UNSOUND: &str = "backup-unsound";

/// The folders that were made for a copy, the deepest first.
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    /// Takes them away, as far as nobody put anything into them.
    pub(super) fn undo(&self) {
        // A folder that stays is empty, and does no harm.
        let _ = self.0.iter().try_for_each(std::fs::remove_dir);
    }
}

/// Makes the folder for the copy, and marks it as not finished. If it is refused, it is as it was before.
pub(super) fn begin(from: &Path, to: &Path) -> Result<Made, StoreError> {
    let above = to.ancestors().filter(|path| !path.as_os_str().is_empty());
    let made = Made(above.take_while(|path| !path.exists()).map(Path::to_owned).collect());
    begin_in(from, to).inspect_err(|_| made.undo())?;
    mark_unfinished(to).inspect_err(|_| {
        let _ = RealDisk.remove(&to.join(MARKER));
        made.undo();
    })?;
    Ok(made)
}

fn begin_in(from: &Path, to: &Path) -> Result<(), StoreError> {
    let refused = |why: &str| {
        Err(StoreError::new(StoreErrorKind::Unavailable, format!("the folder {} {why}", to.display())))
    };
    let access = disk::make_private(to).map_err(failed(format!("making the folder {}", to.display())))?;
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
    access.warn(to);
    // The folder's own name must be as durable as what is in it; one that is not ours to read was there before.
    let _ = own.ancestors().skip(1).try_for_each(|above| RealDisk.sync_dir(above));
    Ok(())
}

fn mark_unfinished(to: &Path) -> Result<(), StoreError> {
    let marked = RealDisk.open(&to.join(MARKER)).and_then(|file| file.sync());
    marked.and_then(|()| RealDisk.sync_dir(to)).map_err(failed(format!("writing {MARKER}")))
}

/// Marks a copy as one that cannot be read in full: it is not opened until somebody removes the file `backup-unsound`, which says `why`.
pub fn mark_unsound(copy: &Path, why: &str) -> Result<(), StoreError> {
    let text = format!("{why}\nTo open this copy all the same, remove this file.\n");
    let written = RealDisk.open(&copy.join(UNSOUND)).and_then(|file| {
        file.set_len(text.len() as u64)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync()
    });
    written.and_then(|()| RealDisk.sync_dir(copy)).map_err(failed(format!("writing {UNSOUND}")))
}

/// Removes the mark of [`mark_unsound`] from a copy that was read in full after all.
pub fn mark_sound(copy: &Path) -> Result<(), StoreError> {
    let removed = match RealDisk.remove(&copy.join(UNSOUND)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| RealDisk.sync_dir(copy)),
    };
    removed.map_err(failed(format!("removing {UNSOUND}")))
}

/// Why a folder with these files in it is not opened, if it is not.
pub(in crate::embedded) fn refusal(names: &[String]) -> Option<String> {
    let has = |marker: &str| names.iter().any(|name| name == marker);
    if has(MARKER) {
        return Some("is a backup that was not finished; make it again, or open another".into());
    }
    let words = format!(
        "is a backup that cannot be read in full, as its file {UNSOUND} says; open another, or remove that file to open it all the same"
    );
    has(UNSOUND).then_some(words)
}
