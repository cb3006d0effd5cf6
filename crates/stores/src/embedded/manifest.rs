//! The manifest: which files make up the store, and up to where. Replaced whole, atomically.

use std::{io, path::Path};

use duly_core::Lane;

use super::{
    disk::{Disk, beyond_repair},
    table::TableKind,
    wheel::LEVELS,
};

/// The format this version writes.
pub(super) const FORMAT: u32 = 3;
/// The oldest that it reads. Format 1 had journal segments without a header; up to format 2 a lane's number was its place in the list.
pub(super) const FORMAT_MIN: u32 = 1;
pub(super) const NAME: &str = "manifest";

/// Everything that is not in the journal.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The first journal segment that is needed.
    pub(super) journal_start: u32,
    /// The number of the first frame in it.
    pub(super) first_frame: u64,
    /// Frames from this one on are not counted in the books below.
    pub(super) next_frame: u64,
    pub(super) opened: [u64; LEVELS],
    pub(super) tables: Vec<TableLine>,
    pub(super) slices: Vec<SliceLine>,
    pub(super) lanes: Vec<LaneLine>,
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) cancelled: u64,
    pub(super) purged: u64,
    pub(super) next_file: u32,
    pub(super) next_version: u64,
    /// The first claims log that is needed.
    pub(super) claims: u32,
    /// Journal segments from this number on have a header and salted frames.
    #[serde(default = "none_salted")]
    pub(super) salted_from: u32,
    /// No lane gets a number below this.
    #[serde(default)]
    pub(super) next_lane: u32,
}

/// What a manifest of format 1 does not say.
fn none_salted() -> u32 {
    u32::MAX
}

/// What every format has.
#[derive(serde::Deserialize)]
struct Version {
    format: u32,
}

/// One table.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct TableLine {
    pub(super) number: u32,
    pub(super) kind: TableKind,
    pub(super) data_len: u64,
    pub(super) keys_len: u64,
    /// Of the keys file up to `keys_len`.
    pub(super) keys_crc: u32,
}

/// One slice of finished messages.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct SliceLine {
    pub(super) number: u32,
    pub(super) len: u64,
    /// Of the file up to `len`.
    pub(super) crc: u32,
}

/// One lane.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct LaneLine {
    pub(super) queue: bool,
    pub(super) name: String,
    pub(super) paused: bool,
    /// Up to format 2 it is not written: the place in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u32>,
}

impl LaneLine {
    pub(super) fn lane(&self) -> Option<Lane> {
        Some(if self.queue {
            Lane::Queue(duly_core::Topic::parse(&self.name).ok()?)
        } else {
            Lane::Sink(duly_core::SinkName::parse(&self.name).ok()?)
        })
    }
}

/// Writes the manifest: new file, sync, rename, sync of the folder.
pub(super) fn write(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    let json = serde_json::to_vec(manifest)?;
    let mut bytes = format!("{:08x}\n", crc32c::crc32c(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    let new = dir.join("manifest.new");
    let file = disk.open(&new)?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync().map_err(beyond_repair)?;
    // The names of the files it speaks of must not be lost while its own is not.
    disk.sync_dir(dir).map_err(beyond_repair)?;
    disk.rename(&new, &dir.join(NAME)).map_err(beyond_repair)?;
    disk.sync_dir(dir).map_err(beyond_repair)
}

/// Reads the manifest; `None` if the folder is new.
pub(super) fn read(disk: &dyn Disk, dir: &Path, names: &[String]) -> io::Result<Option<Manifest>> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(None);
    }
    let file = disk.open(&dir.join(NAME))?;
    parse(&super::table::read_all(&*file, 0, file.len()?)?).map(Some)
}

/// Reads the bytes of a manifest.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Manifest> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{NAME} {what}"));
    let (crc, json) = bytes.split_at_checked(9).ok_or_else(|| bad("is cut short"))?;
    let crc = std::str::from_utf8(&crc[..8]).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok());
    if crc != Some(crc32c::crc32c(json)) {
        return Err(bad("does not match its checksum"));
    }
    // The format first: another one has other fields.
    let Version { format } = serde_json::from_slice(json)?;
    if !(FORMAT_MIN..=FORMAT).contains(&format) {
        return Err(bad(&format!(
            "has format {format}, this version reads {FORMAT_MIN} to {FORMAT}; open it with the version that wrote it"
        )));
    }
    Ok(serde_json::from_slice(json)?)
}
