//! Segments of the journal that were laid down and never used.

use std::{collections::VecDeque, path::Path};

use duly_core::store::StoreError;

use super::{
    super::{
        disk::Disk,
        journal::Segment,
        manifest::Manifest,
        segment::{is_used, reuse},
    },
    io_error, numbered,
};

/// Takes the segments at the end of the journal that were never used, and gives them new numbers: an empty segment before a used one
/// would look like damage.
pub(super) fn unused_segments(
    dir: &Path,
    disk: &dyn Disk,
    names: &[String],
    manifest: &Manifest,
    bytes: u64,
    next_file: &mut u32,
) -> Result<VecDeque<Segment>, StoreError> {
    let mut unused = Vec::new();
    let needed = |number: &u32| *number >= manifest.journal.segment;
    for number in numbered(names, "journal").into_iter().rev().take_while(needed) {
        let salted = number >= manifest.salted_from;
        let name = format!("journal-{number}");
        let failed = |error: std::io::Error| io_error(&format!("reading {name}"), error);
        let file = disk.open(&dir.join(&name)).map_err(failed)?;
        if is_used(&*file, number, salted).map_err(failed)? {
            break;
        }
        let len = file.len().map_err(failed)?;
        unused.push((number, salted && len >= bytes));
    }
    let mut segments = VecDeque::new();
    for (old, fits) in unused.into_iter().rev() {
        let name = format!("journal-{old}");
        let failed = |error: std::io::Error| io_error(&format!("reusing {name}"), error);
        if fits {
            *next_file += 1;
            segments.push_back(reuse(disk, dir, old, *next_file).map_err(failed)?);
        } else {
            disk.remove(&dir.join(&name)).map_err(failed)?;
        }
    }
    Ok(segments)
}
