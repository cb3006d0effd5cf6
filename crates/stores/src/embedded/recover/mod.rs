//! Opens a data folder: reads the files that the manifest names, replays the journal, and restores the claims of the last process.

mod claims;
mod memory;
mod replay;
mod segments;
mod tables;

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, RwLock, atomic::AtomicU64},
};

use duly_core::{
    Now,
    store::{StoreError, StoreErrorKind},
};

use self::segments::unused_segments;
use super::{
    Options, SharedEngine,
    background::is_full,
    buckets::Buckets,
    buffer::Buffer,
    claim_log::ClaimLog,
    damage::{Damaged, DamagedMessages},
    disk::{Disk, DiskFile, cause_of_failed_sync},
    ended::Ended,
    engine::Engine,
    in_flight::InFlight,
    index::{Index, Marks, Position},
    inspect,
    journal::Journal,
    lanes::{LaneState, Lanes},
    lifecycle::Lifecycle,
    manifest::{self, FORMAT, JournalStart, Manifest},
    metrics::Timing,
    segment::{UNNAMED, lay_down},
    sequences::Sequences,
    stall::Stalls,
    tables::Tables,
    wheel::Opened,
};

/// The kinds of files that have a number; no number is used twice.
pub(super) const KINDS: [&str; 4] = ["journal", "table", "ended", "claims"];

/// A fault of the folder, and where it is.
fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Damaged, what)
}

pub(super) fn io_error(doing: &str, error: std::io::Error) -> StoreError {
    let kind = match error.kind() {
        std::io::ErrorKind::InvalidData => StoreErrorKind::Damaged,
        _ if is_full(&error) => StoreErrorKind::Full,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, format!("{doing} failed: {error}{}", hint(&error))).with_source(error)
}

/// Advice for an error without a known reason.
pub(super) fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            "; this process, or the file system, allows no file of that size: raise the limit (ulimit -f)"
        }
        _ => "",
    }
}

/// Opening takes a segment of the journal. One is kept ready for that, but openings on a full disk use it up.
fn no_segment(dir: &Path, bytes: u64, error: std::io::Error) -> StoreError {
    if !is_full(&error) || error.kind() == std::io::ErrorKind::FileTooLarge {
        return io_error("laying down the journal", error);
    }
    let what = format!(
        "the disk has no room for a journal segment, without which the data folder {} cannot be opened: free {} KiB and start \
         again; nothing that was accepted is lost",
        dir.display(),
        bytes.div_ceil(1024),
    );
    StoreError::new(StoreErrorKind::Full, what).with_source(error)
}

/// Opens the folder and rebuilds the state in memory.
pub(super) fn open(
    dir: &Path,
    options: Options,
    now: Now,
) -> Result<(SharedEngine, Box<dyn Send + Sync>), StoreError> {
    let disk = options.disk.clone();
    let lock = disk.lock(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let what =
                format!("the data folder {} is open in another process; stop that one first", dir.display());
            StoreError::new(StoreErrorKind::Unavailable, what)
        }
        _ => io_error(&format!("opening the data folder {}", dir.display()), error),
    })?;
    let names = disk.list(dir).map_err(|error| io_error("listing the data folder", error))?;
    inspect::contents(dir, &names)?;
    let mut opening = Opening::new(dir, disk, &names, options, now)?;
    opening.load_tables()?;
    opening.load_slices()?;
    let mut opening = opening.replay_journal()?;
    let claims = opening.restore_claims()?;
    opening.upgrade()?;
    opening.name_claims_log(claims)?;
    opening.remove_orphan_files()?;
    Ok((opening.into_shared(), lock))
}

/// The numbers in the names of files of a kind, ascending. Names with anything after the number do not count.
pub(super) fn numbered(names: &[String], kind: &str) -> Vec<u32> {
    let suffixes: &[&str] = if kind == "table" { &[".data", ".keys"] } else { &[""] };
    let number = |name: &String| {
        let rest = name.strip_prefix(kind)?.strip_prefix('-')?;
        suffixes.iter().find_map(|suffix| rest.strip_suffix(suffix))?.parse().ok()
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

struct Opening<'a> {
    dir: &'a Path,
    disk: Arc<dyn Disk>,
    names: &'a [String],
    manifest: Manifest,
    engine: Engine,
    claims: ClaimLog,
    /// Keys on their way into the index.
    staged: Vec<(u64, Position, Marks)>,
    /// The unreadable parts of runs.
    damaged: Vec<Damaged>,
}

impl<'a> Opening<'a> {
    fn new(
        dir: &'a Path,
        disk: Arc<dyn Disk>,
        names: &'a [String],
        options: Options,
        now: Now,
    ) -> Result<Self, StoreError> {
        let found =
            manifest::read(&*disk, dir, names).map_err(|error| io_error("reading the manifest", error))?;
        let mut manifest = match found {
            Some(manifest) => manifest,
            None => {
                let journal = JournalStart { segment: 1, first_frame: 1, next_frame: 1 };
                let fresh = Manifest { format: FORMAT, journal, ..Manifest::default() };
                manifest::write(&*disk, dir, &fresh)
                    .map_err(|error| io_error("writing the first manifest", error))?;
                fresh
            }
        };
        let seen = KINDS.iter().flat_map(|kind| numbered(names, kind)).max();
        let mut next_file = manifest.next_file.max(seen.unwrap_or(0));
        let segment_bytes = options.segment_bytes;
        let mut ready = unused_segments(dir, &*disk, names, &manifest, segment_bytes, &mut next_file)?;
        let first = match ready.pop_front() {
            Some(first) => first,
            None => {
                next_file += 1;
                let first = lay_down(&*disk, dir, next_file, segment_bytes);
                first.map_err(|error| no_segment(dir, segment_bytes, error))?
            }
        };
        disk.sync_dir(dir).map_err(|error| io_error("syncing the data folder", error))?;
        manifest.salted_from = manifest.salted_from.min(first.number);
        let journal =
            Journal::new(first, ready, manifest.journal.next_frame, segment_bytes, manifest.salted_from);
        let mut lanes = Lanes::default();
        for (line, position) in manifest.lanes.iter().zip(0..) {
            let lane = line.lane().ok_or_else(|| damaged("the manifest names a lane that cannot be"))?;
            let number = line.number.unwrap_or(position);
            lanes.add(number, lane);
            if let Some(mut state) = lanes.get_mut(number) {
                state.set_paused(line.paused);
            }
        }
        lanes.reserve(manifest.next_lane);
        let mut engine = Engine {
            now,
            index: Index::new(),
            lanes,
            buckets: Buckets::new(Opened(manifest.opened)),
            tables: Tables::default(),
            journal,
            in_flight: InFlight::new(numbered(names, "claims")),
            ended: Ended::new(options.retention, options.retention_max),
            dead_buffer: Buffer::default(),
            damaged: DamagedMessages::default(),
            ever: manifest.ever.totals(),
            sequences: Sequences::new(next_file, manifest.next_version),
            lifecycle: Lifecycle::default(),
            stalls: Stalls::default(),
            options,
        };
        let claims = Self::new_claim_log(&*disk, dir, &mut engine)?;
        Ok(Self { dir, disk, names, manifest, engine, claims, staged: Vec::new(), damaged: Vec::new() })
    }

    fn file(&self, name: &str) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.disk.open(&self.dir.join(name)).map_err(|error| io_error(&format!("opening {name}"), error))
    }

    /// Removes files that a crash left behind: the manifest does not name them.
    fn remove_orphan_files(&self) -> Result<(), StoreError> {
        let needed = |name: &String| {
            let number = |prefix: &str| numbered(std::slice::from_ref(name), prefix).first().copied();
            if let Some(table) = number("table") {
                return self.engine.tables.has(table);
            }
            if let Some(slice) = number("ended") {
                // Also one that is past retention by now: the manifest on disk names it until the next checkpoint.
                return self.engine.ended.has_slice(slice);
            }
            if let Some(segment) = number("journal") {
                return segment >= self.manifest.journal.segment;
            }
            name != manifest::NEW && name != UNNAMED
        };
        for name in self.names.iter().filter(|name| !needed(name)) {
            match self.disk.remove(&self.dir.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(&format!("removing {name}"), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the current format to the manifest before the first segment of that format is used: an older version would take such a
    /// segment for an unused one.
    fn upgrade(&self) -> Result<(), StoreError> {
        if self.manifest.format == FORMAT {
            return Ok(());
        }
        let failed = |error| io_error("writing the manifest in its new format", error);
        let found = manifest::read(&*self.disk, self.dir, self.names).map_err(failed)?;
        let Some(old) = found else { return Ok(()) };
        let salted_from = self.manifest.salted_from;
        let new = Manifest { format: FORMAT, salted_from, ..old };
        manifest::write(&*self.disk, self.dir, &new).map_err(failed)
    }

    /// Names the log of this opening in the manifest, if all claims are in it: by that the next opening notices if the log is missing. The older
    /// logs are removed by the next checkpoint.
    fn name_claims_log(&self, log: Option<u32>) -> Result<(), StoreError> {
        let Some(claims) = log else { return Ok(()) };
        let failed = |error| io_error("writing the claims log's name into the manifest", error);
        let name = [manifest::NAME.to_owned()];
        let Some(old) = manifest::read(&*self.disk, self.dir, &name).map_err(failed)? else { return Ok(()) };
        if let Err(error) = manifest::stage(&*self.disk, self.dir, &Manifest { claims, ..old }) {
            // The store must open on a full disk, too, also where only a sync says so. The manifest is as it was, and valid.
            // After any other failed sync it is not known what is on disk.
            if !is_full(cause_of_failed_sync(&error).unwrap_or(&error)) {
                return Err(failed(error));
            }
            tracing::warn!(%error, "claims log not named in the manifest; the next opening cannot notice if it is missing");
            let _ = self.disk.remove(&self.dir.join(manifest::NEW));
            return Ok(());
        }
        manifest::publish(&*self.disk, self.dir).map_err(failed)
    }

    fn into_shared(self) -> SharedEngine {
        shared(self.dir, self.disk, self.engine, self.claims)
    }
}

fn shared(dir: &Path, disk: Arc<dyn Disk>, engine: Engine, claims: ClaimLog) -> SharedEngine {
    let steps = engine.stalls.steps();
    let numbers = engine.lanes.iter().map(LaneState::lane);
    let lanes = numbers.filter_map(|lane| Some((lane.clone(), engine.lanes.number(lane)?))).collect();
    SharedEngine {
        engine: Mutex::new(engine),
        committer: Condvar::new(),
        background: Condvar::new(),
        room: tokio::sync::Notify::new(),
        moved: tokio::sync::Notify::new(),
        round: Mutex::new(()),
        moves: Mutex::new(()),
        surveying: tokio::sync::Mutex::new(()),
        claims,
        timing: Timing::default(),
        progress: AtomicU64::new(0),
        steps,
        lanes: RwLock::new(lanes),
        disk,
        dir: dir.to_owned(),
    }
}
