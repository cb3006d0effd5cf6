//! The manifest: which files make up the store, and how many bytes of each count. It is replaced atomically.

use std::{io, path::Path};

use duly_core::{Lane, store::Totals};

use super::{
    disk::{Disk, beyond_repair},
    table::TableKind,
    wheel::LEVELS,
};

/// The format this version writes.
pub(super) const FORMAT: u32 = 3;
/// The oldest that it reads. Format 1 has journal segments without a header. Up to format 2, the number of a lane is its position in the
/// list of lanes.
pub(super) const FORMAT_MIN: u32 = 1;
pub(super) const NAME: &str = "manifest";
/// Its name until it is complete.
pub(super) const NEW: &str = "manifest.new";

/// Everything that is not in the journal. Names and order of the fields are the format on disk.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    #[serde(flatten)]
    pub(super) journal: JournalStart,
    pub(super) opened: [u64; LEVELS],
    pub(super) tables: Vec<TableLine>,
    pub(super) slices: Vec<SliceLine>,
    pub(super) lanes: Vec<LaneLine>,
    #[serde(flatten)]
    pub(super) ever: EverCounts,
    /// The number of the newest file.
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

/// Where replay of the journal begins.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct JournalStart {
    /// The first segment that is needed.
    #[serde(rename = "journal_start")]
    pub(super) segment: u32,
    /// The number of the first frame in it.
    pub(super) first_frame: u64,
    /// Frames before this one are counted in [`EverCounts`] already.
    pub(super) next_frame: u64,
}

/// How many messages were ever accepted, and how many ended in which way.
#[derive(Debug, Default, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) struct EverCounts {
    accepted: u64,
    delivered: u64,
    cancelled: u64,
    purged: u64,
}

impl EverCounts {
    pub(super) fn of(totals: &Totals) -> Self {
        let Totals { accepted, delivered, cancelled, purged, .. } = *totals;
        Self { accepted, delivered, cancelled, purged }
    }

    pub(super) fn totals(self) -> Totals {
        Totals::ever(self.accepted, self.delivered, self.cancelled, self.purged)
    }
}

/// A manifest of format 1 does not have the field.
fn none_salted() -> u32 {
    u32::MAX
}

/// The field that every format has.
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
    /// Not written up to format 2: there it is the position in the list.
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

/// Replaces the manifest.
pub(super) fn write(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    stage(disk, dir, manifest)?;
    publish(disk, dir)
}

/// Writes the next manifest beside the current one, which stays as it is, and makes it durable.
pub(super) fn stage(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    let json = serde_json::to_vec(manifest)?;
    let mut bytes = format!("{:08x}\n", crc32c::crc32c(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    let file = disk.open(&dir.join(NEW))?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync().map_err(beyond_repair)?;
    // The names of the files that it names must be durable before its own is.
    disk.sync_dir(dir).map_err(beyond_repair)
}

/// Puts the staged manifest in the place of the current one.
pub(super) fn publish(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.rename(&dir.join(NEW), &dir.join(NAME)).map_err(beyond_repair)?;
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
    // The format is checked first: another format has other fields.
    let Version { format } = serde_json::from_slice(json)?;
    if !(FORMAT_MIN..=FORMAT).contains(&format) {
        return Err(bad(&format!(
            "has format {format}, this version reads {FORMAT_MIN} to {FORMAT}; open it with the version that wrote it"
        )));
    }
    Ok(serde_json::from_slice(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As written by the first version with format 3.
    const WRITTEN: &str = r#"{"format":3,"journal_start":5,"first_frame":17,"next_frame":19,"opened":[6,5,4,3,2,1],"tables":[{"number":7,"kind":{"Bucket":{"level":1,"number":9}},"data_len":64,"keys_len":24,"keys_crc":3},{"number":8,"kind":"Run","data_len":0,"keys_len":0,"keys_crc":0},{"number":9,"kind":"Dead","data_len":0,"keys_len":0,"keys_crc":0}],"slices":[{"number":6,"len":64,"crc":9}],"lanes":[{"queue":true,"name":"work","paused":false,"number":3}],"accepted":10,"delivered":4,"cancelled":2,"purged":1,"next_file":9,"next_version":23,"claims":4,"salted_from":2,"next_lane":4}"#;

    #[test]
    fn a_manifest_is_written_as_it_always_was() {
        let bytes = format!("{:08x}\n{WRITTEN}", crc32c::crc32c(WRITTEN.as_bytes()));
        let manifest = parse(bytes.as_bytes()).unwrap();
        assert_eq!((manifest.journal.segment, manifest.journal.first_frame), (5, 17));
        assert_eq!(manifest.ever.totals(), Totals::ever(10, 4, 2, 1));
        assert_eq!(serde_json::to_string(&manifest).unwrap(), WRITTEN);
    }
}
