//! Opening: the manifest's files, then the journal's tail, then what was claimed when the process ended.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Arc, Condvar, Mutex, RwLock, atomic::AtomicU32},
};

use bytes::Bytes;
use duly_core::{
    MessageId, Now,
    store::{Books, Holder, StoreError, StoreErrorKind},
};

use super::{
    Options, Shared,
    claim::lost_entry,
    disk::{Disk, DiskFile},
    ended::{EndPeek, Ended, Slice, head_facts},
    engine::{Buffer, Engine, read_lane},
    entry::{self, Peek},
    flight::{ClaimLog, Flight, Held, Note, read_notes},
    index::{Index, Marks, Place},
    journal::{End, FRAME_HEADER, Kind, Record, Segment, Tail, is_used, read_segment},
    lanes::{Extent, Lanes, NearKey},
    manifest::{self, FORMAT, Manifest, TableLine},
    table::{KeyRecord, Table, TableKind, live_keys, read_all, read_entry},
    wheel::{Opened, Slot},
};

/// What is wrong with the folder, and where.
fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Damaged, what)
}

fn io_error(doing: &str, error: &std::io::Error) -> StoreError {
    let kind = match error.kind() {
        std::io::ErrorKind::InvalidData => StoreErrorKind::Damaged,
        std::io::ErrorKind::StorageFull => StoreErrorKind::Full,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, format!("{doing} failed: {error}"))
}

/// Opens the folder and brings everything in memory to where it was.
pub(super) fn open(
    dir: &Path,
    options: Options,
    now: Now,
) -> Result<(Shared, Box<dyn Send + Sync>), StoreError> {
    let disk = options.disk.clone();
    let lock = disk.lock(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let what =
                format!("the data folder {} is open in another process; stop that one first", dir.display());
            StoreError::new(StoreErrorKind::Unavailable, what)
        }
        _ => io_error(&format!("opening the data folder {}", dir.display()), &error),
    })?;
    let names = disk.list(dir).map_err(|error| io_error("listing the data folder", &error))?;
    let mut opening = Opening::new(dir, disk, &names, options, now)?;
    opening.load_tables()?;
    opening.load_slices()?;
    opening.replay_journal()?;
    opening.restore_claims()?;
    opening.remove_strangers()?;
    Ok((opening.into_shared()?, lock))
}

/// The numbers in the names of files that begin with `prefix`, ascending.
fn numbered(names: &[String], prefix: &str) -> Vec<u32> {
    let number = |name: &String| {
        let rest = name.strip_prefix(prefix)?.strip_prefix('-')?;
        rest.split('.').next()?.parse().ok()
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Takes the segments at the end that were laid down and never used, under new numbers: an empty one before a used one
/// would look like damage.
fn unused_segments(
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

struct Opening<'a> {
    dir: &'a Path,
    disk: Arc<dyn Disk>,
    names: &'a [String],
    manifest: Manifest,
    engine: Engine,
    next_version: u32,
    claims: Option<ClaimLog>,
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
            manifest::read(&*disk, dir, names).map_err(|error| io_error("reading the manifest", &error))?;
        let manifest = match found {
            Some(manifest) => manifest,
            None if !numbered(names, "journal").is_empty() => {
                return Err(damaged(
                    "the data folder has a journal and no manifest; restore it from a backup",
                ));
            }
            None => {
                let fresh = Manifest {
                    format: FORMAT,
                    journal_start: 1,
                    first_frame: 1,
                    next_frame: 1,
                    ..Manifest::default()
                };
                manifest::write(&*disk, dir, &fresh)
                    .map_err(|error| io_error("writing the first manifest", &error))?;
                fresh
            }
        };
        let seen =
            ["journal", "table", "ended", "claims"].iter().flat_map(|kind| numbered(names, kind)).max();
        let mut next_file = manifest.next_file.max(seen.unwrap_or(0));
        let open = |name: String| {
            disk.open(&dir.join(&name)).map_err(|error| io_error(&format!("opening {name}"), &error))
        };
        let mut ready = unused_segments(
            dir,
            &*disk,
            names,
            manifest.journal_start,
            options.segment_bytes,
            &mut next_file,
        )?;
        let first = match ready.pop_front() {
            Some(first) => first,
            None => {
                next_file += 1;
                let file = open(format!("journal-{next_file}"))?;
                file.allocate(options.segment_bytes)
                    .map_err(|error| io_error("laying down the journal", &error))?;
                Segment { number: next_file, file, live: 0, first: 0 }
            }
        };
        disk.sync_dir(dir).map_err(|error| io_error("syncing the data folder", &error))?;
        let mut journal = Tail::new(first, manifest.next_frame, options.segment_bytes);
        journal.spares = ready;
        let mut lanes = Lanes::default();
        for line in &manifest.lanes {
            let lane = line.lane().ok_or_else(|| damaged("the manifest names a lane that cannot be"))?;
            let number = lanes.add(lane);
            if let Some(state) = lanes.get_mut(number) {
                state.paused = line.paused;
            }
        }
        let engine = Engine {
            now,
            opened: Opened(manifest.opened),
            index: Index::new(),
            lanes,
            buckets: BTreeMap::new(),
            tables: HashMap::default(),
            journal,
            flight: Flight::default(),
            ended: Ended::new(options.retention, options.retention_max),
            dead: Buffer::default(),
            dead_count: 0,
            books: Books {
                accepted: manifest.accepted,
                delivered: manifest.delivered,
                cancelled: manifest.cancelled,
                purged: manifest.purged,
                ..Books::default()
            },
            next_file,
            buffered: 0,
            window: 0,
            full: false,
            closed: None,
            stop: false,
            graveyard: Vec::new(),
            arriving: None,
            splitting: None,
            ended_over: Vec::new(),
            slice_files: Vec::new(),
            checkpointed_at: 0,
            claim_files: numbered(names, "claims"),
            writer_waits: false,
            scratch: Vec::new(),
            keeper_waits: false,
            options,
        };
        let next_version = manifest.next_version;
        Ok(Self { dir, disk, names, manifest, engine, next_version, claims: None })
    }

    fn file(&self, name: &str) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.disk.open(&self.dir.join(name)).map_err(|error| io_error(&format!("opening {name}"), &error))
    }

    fn load_tables(&mut self) -> Result<(), StoreError> {
        for line in std::mem::take(&mut self.manifest.tables) {
            self.load_table(&line)?;
        }
        Ok(())
    }

    fn load_table(&mut self, line: &TableLine) -> Result<(), StoreError> {
        let number = line.number;
        let data = self.file(&format!("table-{number}.data"))?;
        let keys = self.file(&format!("table-{number}.keys"))?;
        let bytes = read_all(&*keys, 0, line.keys_len)
            .map_err(|error| io_error(&format!("reading table-{number}.keys"), &error))?;
        let len = data.len().map_err(|error| io_error(&format!("reading table-{number}.data"), &error))?;
        if bytes.len() as u64 != line.keys_len || len < line.data_len {
            return Err(damaged(format!(
                "table-{number} is shorter than the manifest says; restore the folder from a backup"
            )));
        }
        let mut table = Table::new(number, line.kind, data, keys);
        table.data_len = line.data_len;
        table.added_keys(&bytes);
        if table.keys_crc != line.keys_crc {
            return Err(damaged(format!(
                "table-{number}.keys does not match its checksum in the manifest; restore the folder from a backup"
            )));
        }
        let live: Vec<KeyRecord> = live_keys(&bytes).collect();
        let all = bytes.len() / super::table::KEY_BYTES;
        for key in &live {
            self.count_key(line.kind, number, *key)?;
        }
        table.live = live.len() as u64;
        // Entry sizes are not in the keys: waste is estimated until the table is rewritten.
        table.live_bytes = line.data_len * table.live / (all as u64).max(1);
        if line.kind == TableKind::Run {
            self.announce(number, &live, line.data_len, &*table.data)?;
        }
        if let Some(slot) = line.kind.slot() {
            self.engine.buckets.entry(slot).or_default().tables.push(number);
        }
        let empty = table.live == 0;
        self.engine.tables.insert(number, table);
        if empty {
            self.engine.bury(number);
        }
        Ok(())
    }

    fn count_key(&mut self, kind: TableKind, number: u32, key: KeyRecord) -> Result<(), StoreError> {
        let Some(lane) = self.engine.lanes.get_mut(key.lane) else {
            return Err(damaged(format!("table-{number} names lane {}, which is not known", key.lane)));
        };
        let place = Place { file: number, off8: key.off8 };
        let mut marks = Marks::default();
        match kind {
            TableKind::Bucket { level, number } => {
                lane.pending += 1;
                let slot = Slot { level, number };
                self.engine.buckets.entry(slot).or_default().parts[slot.part(key.ready)] += 1;
            }
            TableKind::Run => {
                lane.pending += 1;
                lane.near_count += 1;
                marks.near = true;
            }
            TableKind::Dead => {
                lane.dead += 1;
                self.engine.dead_count += 1;
            }
        }
        self.engine.index.insert(key.hash, place, marks);
        Ok(())
    }

    /// Tells the lanes which stretches of a run are theirs.
    fn announce(
        &mut self,
        number: u32,
        live: &[KeyRecord],
        len: u64,
        data: &dyn DiskFile,
    ) -> Result<(), StoreError> {
        let mut stretches: Vec<(u32, u64)> = Vec::new();
        for key in live {
            if stretches.last().is_none_or(|(lane, _)| *lane != key.lane) {
                stretches.push((key.lane, u64::from(key.off8) * entry::ALIGN as u64));
            }
        }
        for (at, (lane, start)) in stretches.iter().enumerate() {
            let end = stretches.get(at + 1).map_or(len, |(_, start)| *start);
            let bytes = read_entry(data, Place::new(number, *start))
                .map_err(|error| io_error(&format!("reading byte {start} of table-{number}.data"), &error))?;
            let key = Peek::framed(&bytes)
                .and_then(NearKey::of)
                .map_err(|_| damaged(format!("table-{number}.data, byte {start}")))?;
            if let Some(state) = self.engine.lanes.get_mut(*lane) {
                state.extents.push(Extent { table: number, next: *start, end, key });
            }
        }
        Ok(())
    }

    fn load_slices(&mut self) -> Result<(), StoreError> {
        for line in std::mem::take(&mut self.manifest.slices) {
            let name = format!("ended-{}", line.number);
            let slice = Slice::load(line.number, self.file(&name)?, line.len)
                .map_err(|error| io_error(&format!("reading {name}"), &error))?;
            if (slice.file_len, slice.file_crc) != (line.len, line.crc) {
                return Err(damaged(format!(
                    "{name} does not match its checksum in the manifest; restore the folder from a backup"
                )));
            }
            self.engine.ended.slices.push_back(slice);
        }
        self.engine.next_file += 1;
        let number = self.engine.next_file;
        let file = self.file(&format!("ended-{number}"))?;
        self.engine.slice_files.push((number, file));
        Ok(())
    }

    fn replay_journal(&mut self) -> Result<(), StoreError> {
        let own = self.engine.journal.current();
        let mut next = self.manifest.first_frame;
        let mut over: Option<String> = None;
        let mut last = String::new();
        let mut torn = Vec::new();
        let mut read = Vec::new();
        let start = self.manifest.journal_start;
        let listed = self.disk.list(self.dir).map_err(|error| io_error("listing the data folder", &error))?;
        for number in numbered(&listed, "journal").into_iter().filter(|number| (start..own).contains(number))
        {
            let name = format!("journal-{number}");
            let file = self.file(&name)?;
            let len = file.len().map_err(|error| io_error(&format!("reading {name}"), &error))?;
            let bytes =
                read_all(&*file, 0, len).map_err(|error| io_error(&format!("reading {name}"), &error))?;
            self.engine
                .journal
                .segments
                .insert(read.len(), Segment { number, file: file.clone(), live: 0, first: next });
            read.push(number);
            let mut fault = None;
            let before = next;
            let (end, after) =
                read_segment(&bytes, number, next, |record| match self.apply(number, &record) {
                    Ok(()) => true,
                    Err(error) => {
                        fault = Some(error);
                        false
                    }
                });
            if let Some(error) = fault {
                return Err(error);
            }
            next = after;
            if (next > before || matches!(end, End::Damaged(_)))
                && let Some(earlier) = &over
            {
                return Err(damaged(format!(
                    "{earlier}, although {name} goes on after it; restore the folder from a backup"
                )));
            }
            match end {
                End::Clean(0) => {
                    over.get_or_insert(format!("{name} has no frame {next} at byte 0"));
                }
                End::Clean(at) => last = format!("{name} has no frame {next} at byte {at}"),
                End::Torn(at) => {
                    over = Some(format!("{name} has a bad frame at byte {at}"));
                    torn.push((name, file, at));
                }
                End::Damaged(0) if !last.is_empty() => {
                    return Err(damaged(format!(
                        "{last}, although {name} goes on after it; restore the folder from a backup"
                    )));
                }
                End::Damaged(at) => {
                    return Err(damaged(format!(
                        "{name} has a bad frame at byte {at} with valid ones after it; restore the folder from a backup"
                    )));
                }
            }
        }
        if next < self.manifest.next_frame {
            let found = over.unwrap_or_else(|| "the journal ends".into());
            return Err(damaged(format!(
                "{found}, although the manifest knows of frame {}; restore the folder from a backup",
                self.manifest.next_frame - 1
            )));
        }
        self.engine.journal.start_at(next);
        self.cut(torn)
    }

    /// Cuts the torn frame at the end, and removes segments without a whole one: empty, in front of what is written
    /// next, they would look like damage.
    fn cut(&mut self, torn: Vec<(String, Arc<dyn DiskFile>, u64)>) -> Result<(), StoreError> {
        for (name, file, at) in torn {
            let cut = file.write_at(&[0; FRAME_HEADER], at).and_then(|()| file.sync());
            cut.map_err(|error| io_error(&format!("cutting the torn end of {name}"), &error))?;
            tracing::warn!(%name, at, "the last frame of the journal was torn and is cut: nobody was answered for it");
        }
        let own = self.engine.journal.current();
        let segments = &mut self.engine.journal.segments;
        let firsts: Vec<u64> = segments.iter().skip(1).map(|segment| segment.first).collect();
        // The next one begins with the same number: there is no frame in this one.
        let empty: Vec<u32> = segments
            .iter()
            .zip(firsts)
            .filter(|(segment, next)| segment.first == *next && segment.number != own)
            .map(|(segment, _)| segment.number)
            .collect();
        if empty.is_empty() {
            return Ok(());
        }
        segments.retain(|segment| !empty.contains(&segment.number));
        for number in empty {
            let name = format!("journal-{number}");
            self.disk
                .remove(&self.dir.join(&name))
                .map_err(|error| io_error(&format!("removing {name}"), &error))?;
        }
        self.disk.sync_dir(self.dir).map_err(|error| io_error("syncing the data folder", &error))
    }

    fn apply(&mut self, segment: u32, record: &Record<'_>) -> Result<(), StoreError> {
        let counted = record.frame >= self.manifest.next_frame;
        match record.kind {
            Kind::Accepted | Kind::Changed => {
                let place = Place::new(segment, record.offset);
                self.apply_entry(place, record.body, counted && record.kind == Kind::Accepted)
            }
            Kind::Ended => self.apply_end(record.body, counted),
            Kind::Lane => {
                let (number, lane) =
                    read_lane(record.body).ok_or_else(|| damaged("a lane in the journal cannot be read"))?;
                if number as usize == self.engine.lanes.len() {
                    self.engine.lanes.add(lane);
                }
                Ok(())
            }
            Kind::Paused => {
                let number =
                    record.body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
                if let Some(state) = number.and_then(|number| self.engine.lanes.get_mut(number)) {
                    state.paused = record.body.get(4) == Some(&1);
                }
                Ok(())
            }
        }
    }

    fn apply_entry(&mut self, place: Place, bytes: &[u8], accepted: bool) -> Result<(), StoreError> {
        let unread = |_| {
            damaged(format!("the entry at byte {} of journal-{} cannot be read", place.offset(), place.file))
        };
        let peek = Peek::framed(bytes).map_err(unread)?;
        let hash = hash_of(peek).ok_or_else(|| unread(entry::Garbled))?;
        let version = peek.version();
        self.next_version = newer(self.next_version, version.wrapping_add(1));
        self.engine.books.accepted += u64::from(accepted);
        let known = self.find(hash, peek.id_text())?;
        if known.as_ref().is_some_and(|(_, old)| !is_newer(version, version_of(old))) {
            return Ok(());
        }
        self.engine.journal.count(place.file, true);
        match known {
            Some((old, old_bytes)) => {
                self.uncount(hash, old, &old_bytes);
                self.engine.leave(old, old_bytes.len() as u64);
                let marks = self.engine.settle_down(hash, place, bytes);
                self.engine.index.replace(hash, old, place, Some(marks));
            }
            None => {
                let marks = self.engine.settle_down(hash, place, bytes);
                self.engine.index.insert(hash, place, marks);
            }
        }
        Ok(())
    }

    fn apply_end(&mut self, bytes: &[u8], counted: bool) -> Result<(), StoreError> {
        let unread = || damaged("the end of a message in the journal cannot be read");
        let peek = EndPeek::at(bytes).map_err(|_| unread())?;
        let (hash, _, version) = head_facts(peek.head()).ok_or_else(unread)?;
        let id = peek
            .head()
            .get(entry::FIXED..entry::FIXED + usize::from(peek.head()[33]))
            .and_then(|id| std::str::from_utf8(id).ok());
        if let Some((place, old)) = self.find(hash, id.ok_or_else(unread)?)?
            && version_of(&old) == version
        {
            self.uncount(hash, place, &old);
            self.engine.leave(place, old.len() as u64);
            self.engine.index.remove(hash, place);
        }
        if counted || !self.engine.ended.knows(hash, bytes) {
            self.engine.keep(hash, peek.ended(), bytes);
        }
        if counted {
            match peek.state() {
                Some(duly_core::State::Delivered) => self.engine.books.delivered += 1,
                Some(duly_core::State::Cancelled) => self.engine.books.cancelled += 1,
                _ => self.engine.books.purged += 1,
            }
        }
        Ok(())
    }

    fn uncount(&mut self, hash: u64, place: Place, bytes: &[u8]) {
        let Ok(peek) = Peek::framed(bytes) else { return };
        if peek.is_dead() {
            self.engine.dead_count = self.engine.dead_count.saturating_sub(1);
            if let Some(lane) = self.engine.lanes.get_mut(peek.lane()) {
                lane.dead = lane.dead.saturating_sub(1);
            }
        } else if let Some(marks) = self.engine.index.marks(hash, place) {
            self.engine.uncount(place, marks, peek);
        }
    }

    /// The live entry of an id, read from its place.
    fn find(&self, hash: u64, id: &str) -> Result<Option<(Place, Vec<u8>)>, StoreError> {
        let places: Vec<Place> = self.engine.index.candidates(hash).map(|(place, _)| place).collect();
        for place in places {
            let Some(file) = self.engine.file(place) else { continue };
            let bytes = read_entry(&*file, place).map_err(|error| {
                io_error(&format!("reading byte {} of file {}", place.offset(), place.file), &error)
            })?;
            if Peek::framed(&bytes).is_ok_and(|peek| peek.id_text() == id) {
                return Ok(Some((place, bytes)));
            }
        }
        Ok(None)
    }

    /// What was claimed: receipts stay valid, and what this process had in hand when it ended is lost.
    fn restore_claims(&mut self) -> Result<(), StoreError> {
        let mut notes: BTreeMap<u64, Note> = BTreeMap::new();
        for number in
            numbered(self.names, "claims").into_iter().filter(|number| *number >= self.manifest.claims)
        {
            let name = format!("claims-{number}");
            let file = self.file(&name)?;
            let len = file.len().map_err(|error| io_error(&format!("reading {name}"), &error))?;
            let bytes =
                read_all(&*file, 0, len).map_err(|error| io_error(&format!("reading {name}"), &error))?;
            for note in read_notes(&bytes) {
                if note.released {
                    notes.remove(&note.token);
                } else {
                    notes.insert(note.token, note);
                }
            }
        }
        // A power cut may have forgotten claims: tokens of this opening must be larger than any it gave out. The
        // number of the segment laid down for it is new and durable.
        let next_token = u64::from(self.engine.journal.current()) << 32;
        self.engine.flight = Flight::starting_at(next_token);
        let mut found = Vec::new();
        for note in notes.values() {
            if let Some((place, bytes)) = self.claimed(note)? {
                found.push((*note, place, bytes));
            }
        }
        // If one was claimed alone because it was suspected, it is the one to blame.
        let blamed = found.iter().any(|(note, _, _)| note.alone && !note.client);
        for (note, place, bytes) in &found {
            if note.client {
                self.hold(note, *place, bytes);
            } else {
                self.lose(note, *place, bytes, note.alone || !blamed)?;
            }
        }
        self.open_claim_log()
    }

    /// The entry that a note speaks of, if it is still that version of it.
    fn claimed(&self, note: &Note) -> Result<Option<(Place, Vec<u8>)>, StoreError> {
        let places: Vec<Place> = self.engine.index.candidates(note.hash).map(|(place, _)| place).collect();
        for place in places {
            let Some(file) = self.engine.file(place) else { continue };
            let bytes = read_entry(&*file, place).map_err(|error| {
                io_error(&format!("reading byte {} of file {}", place.offset(), place.file), &error)
            })?;
            if version_of(&bytes) == note.version {
                return Ok(Some((place, bytes)));
            }
        }
        Ok(None)
    }

    fn hold(&mut self, note: &Note, place: Place, bytes: &[u8]) {
        let Ok(peek) = Peek::framed(bytes) else { return };
        let Ok(key) = NearKey::of(peek) else { return };
        self.uncount(note.hash, place, bytes);
        let Some(marks) = self.engine.index.marks(note.hash, place) else { return };
        self.engine.index.set_marks(note.hash, place, Marks { claimed: true, ..marks });
        if let Some(lane) = self.engine.lanes.get_mut(peek.lane()) {
            lane.in_flight += 1;
        }
        let lease_end =
            self.engine.now.mono().saturating_add(std::time::Duration::from_millis(u64::from(note.lease_ms)));
        let held = Held {
            id: key.id,
            hash: note.hash,
            place,
            lane: peek.lane(),
            ready: key.ready,
            version: note.version,
            holder: Holder::Client,
            alone: note.alone,
            lease_end,
            head: peek.head().into(),
            bytes: bytes.len() as u32,
            rank: key.rank,
        };
        self.engine.flight.hold(lease_end, vec![(note.token, held)]);
    }

    fn lose(&mut self, note: &Note, place: Place, bytes: &[u8], counts: bool) -> Result<(), StoreError> {
        let data = Bytes::copy_from_slice(bytes);
        let number = Peek::framed(bytes).map_or(0, Peek::lane);
        let lane = self.engine.lanes.get(number).map(|state| state.lane.clone());
        let stored = lane.and_then(|lane| entry::decode(&data, &lane).ok());
        let stored = stored.ok_or_else(|| damaged("a claimed message cannot be read"))?;
        let version = self.next_version;
        self.next_version = version.wrapping_add(1);
        let why = "the process ended with the message in hand";
        let new = lost_entry(stored, self.engine.now.wall(), note.alone, counts, version, number, why);
        self.uncount(note.hash, place, bytes);
        self.engine.change(note.hash, place, bytes.len() as u64, &new);
        Ok(())
    }

    fn open_claim_log(&mut self) -> Result<(), StoreError> {
        let number = self.engine.file_number();
        let log = ClaimLog::new(self.file(&format!("claims-{number}"))?);
        let held = self.engine.flight.iter().map(|(token, held)| Note {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: u32::try_from(held.lease_end.since(self.engine.now.mono()).as_millis())
                .unwrap_or(u32::MAX),
            client: true,
            alone: held.alone,
            released: false,
        });
        log.write(held).map_err(|error| io_error("writing the claims log", &error))?;
        self.engine.claim_files.push(number);
        self.claims = Some(log);
        Ok(())
    }

    /// Removes files that a crash left half made: nothing names them.
    fn remove_strangers(&self) -> Result<(), StoreError> {
        let needed = |name: &String| {
            let number = |prefix: &str| numbered(std::slice::from_ref(name), prefix).first().copied();
            if let Some(table) = number("table") {
                return self.engine.tables.contains_key(&table);
            }
            if let Some(slice) = number("ended") {
                return self.engine.ended.slices.iter().any(|known| known.number == slice);
            }
            if let Some(segment) = number("journal") {
                return segment >= self.manifest.journal_start;
            }
            name != "manifest.new"
        };
        for name in self.names.iter().filter(|name| !needed(name)) {
            match self.disk.remove(&self.dir.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(&format!("removing {name}"), &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn into_shared(self) -> Result<Shared, StoreError> {
        let lanes =
            self.engine.lanes.iter().zip(0..).map(|(state, number)| (state.lane.clone(), number)).collect();
        Ok(Shared {
            engine: Mutex::new(self.engine),
            committer: Condvar::new(),
            keeper: Condvar::new(),
            room: tokio::sync::Notify::new(),
            moved: tokio::sync::Notify::new(),
            keeping: Mutex::new(()),
            claims: self.claims.ok_or_else(|| damaged("the claims log was not opened"))?,
            lanes: RwLock::new(lanes),
            next_version: AtomicU32::new(self.next_version),
            disk: self.disk,
            dir: self.dir.to_owned(),
        })
    }
}

fn hash_of(peek: Peek<'_>) -> Option<u64> {
    MessageId::parse(peek.id_text()).ok().map(|id| id.hash64())
}

fn version_of(entry: &[u8]) -> u32 {
    Peek::framed(entry).map_or(0, Peek::version)
}

/// Whether `a` was written after `b`; versions wrap round.
fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

fn newer(a: u32, b: u32) -> u32 {
    if is_newer(b, a) { b } else { a }
}
