//! Segments of the journal that were laid down and never used.

use std::{collections::VecDeque, path::Path};

use duly_core::store::StoreError;

use super::{
    super::{
        disk::Disk,
        journal::{Segment, is_used},
    },
    io_error, numbered,
};

/// Takes the segments at the end that were laid down and never used, under new numbers: an empty one before a used one
/// would look like damage.
pub(super) fn unused_segments(
    dir: &Path,
    disk: &dyn Disk,
    names: &[String],
    start: u32,
    bytes: u64,
    next_file: &mut u32,
) -> Result<VecDeque<Segment>, StoreError> {
    let mut unused = Vec::new();
    for number in numbered(names, "journal").into_iter().rev().take_while(|number| *number >= start) {
        let name = format!("journal-{number}");
        let failed = |error: std::io::Error| io_error(&format!("reading {name}"), &error);
        let file = disk.open(&dir.join(&name)).map_err(failed)?;
        if is_used(&*file, number).map_err(failed)? {
            break;
        }
        let len = file.len().map_err(failed)?;
        unused.push((name, len));
    }
    let mut segments = VecDeque::new();
    for (name, len) in unused.into_iter().rev() {
        let failed = |error: std::io::Error| io_error(&format!("reusing {name}"), &error);
        if len < bytes {
            disk.remove(&dir.join(&name)).map_err(failed)?;
            continue;
        }
        *next_file += 1;
        let new = dir.join(format!("journal-{next_file}"));
        disk.rename(&dir.join(&name), &new).map_err(failed)?;
        segments.push_back(Segment {
            number: *next_file,
            file: disk.open(&new).map_err(failed)?,
            live: 0,
            first: 0,
        });
    }
    Ok(segments)
}
