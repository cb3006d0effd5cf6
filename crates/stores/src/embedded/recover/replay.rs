//! Replays the journal: what happened since the manifest was written.

use std::sync::Arc;

use duly_core::{MessageId, store::StoreError};

use super::{
    super::{
        disk::DiskFile,
        ended::{EndPeek, head_fields},
        engine::read_lane,
        entry::{self, Peek},
        index::Position,
        journal::{RecordKind, Segment},
        segment::{End, FRAME_HEADER, RECORD_HEADER, Record, SegmentEnd, read_segment},
        table::{TableKind, read_all, read_entry},
    },
    Opening, damaged, io_error, numbered,
};

/// More versions than can be given out and not yet be durable.
const VERSIONS_FORGOTTEN_MAX: u64 = 1 << 20;

/// The last whole frame of the journal, and the room for the header of the next.
struct LastFrame {
    name: String,
    file: Arc<dyn DiskFile>,
    start: u64,
    end: u64,
    bytes: Vec<u8>,
}

impl LastFrame {
    fn of(name: &str, file: &Arc<dyn DiskFile>, segment: &[u8], start: usize, end: u64) -> Self {
        let whole = segment.len().min(end as usize);
        let mut bytes = segment[start..whole].to_vec();
        // Zeros over the header of a torn frame that may follow: an earlier cut of it may not be durable.
        bytes.resize(bytes.len() + FRAME_HEADER.min(segment.len() - whole), 0);
        Self { name: name.to_owned(), file: file.clone(), start: start as u64, end, bytes }
    }

    /// Makes it durable that the frame is there, and that no frame follows it. The last process may have ended between its
    /// write and its sync. After a failed sync, another sync proves nothing unless the bytes are written again.
    fn make_durable(&self) -> Result<(), StoreError> {
        let done = self.file.write_at(&self.bytes, self.start).and_then(|()| self.file.sync());
        done.map_err(|error| io_error(&format!("writing the end of {} again", self.name), error))
    }
}

impl Opening<'_> {
    pub(super) fn replay_journal(mut self) -> Result<Self, StoreError> {
        let own = self.engine.journal.current();
        let mut next = self.manifest.journal.first_frame;
        let mut over: Option<String> = None;
        let mut last: Option<LastFrame> = None;
        let start = self.manifest.journal.segment;
        let listed = self.disk.list(self.dir).map_err(|error| io_error("listing the data folder", error))?;
        let numbers = numbered(&listed, "journal").into_iter().filter(|number| (start..own).contains(number));
        for number in numbers {
            let name = format!("journal-{number}");
            let file = self.file(&name)?;
            let len = file.len().map_err(|error| io_error(&format!("reading {name}"), error))?;
            let bytes =
                read_all(&*file, 0, len).map_err(|error| io_error(&format!("reading {name}"), error))?;
            let segment = Segment { number, file: file.clone(), salt: 0, live: 0, first: next };
            self.engine.journal.add_replayed(segment);
            let found = self.replay_segment(number, &bytes, next)?;
            next = found.next;
            if (found.last.is_some() || matches!(found.end, End::Damaged(_) | End::Headless(_)))
                && let Some(earlier) = &over
            {
                return Err(damaged(format!(
                    "{earlier}, although {name} goes on after it; restore the folder from a backup"
                )));
            }
            match found.end {
                End::Clean(at) if found.last.is_none() => {
                    over.get_or_insert(format!("{name} has no frame {next} at byte {at}"));
                }
                End::Clean(_) => {}
                End::Torn(at) => {
                    over = Some(format!("{name} has a bad frame at byte {at}"));
                    tracing::warn!(%name, at, "torn last journal frame truncated; it was never acknowledged");
                }
                End::Damaged(at) => return Err(bad_frame(&name, at, &found, last.as_ref())),
                End::Headless(at) => {
                    return Err(damaged(format!(
                        "{name} has a bad header at byte {at}; restore the folder from a backup"
                    )));
                }
            }
            if let (Some(start), End::Clean(end) | End::Torn(end)) = (found.last, found.end) {
                last = Some(LastFrame::of(&name, &file, &bytes, start, end));
            }
            self = self.free_memory()?;
        }
        if next < self.manifest.journal.next_frame {
            let found = over.unwrap_or_else(|| "the journal ends".into());
            return Err(damaged(format!(
                "{found}, although the manifest knows of frame {}; restore the folder from a backup",
                self.manifest.journal.next_frame - 1
            )));
        }
        // Versions given out in frames that a power cut forgot are not given out again.
        self.engine.sequences.skip_versions(VERSIONS_FORGOTTEN_MAX);
        self.engine.journal.start_at(next);
        last.map_or(Ok(()), |last| last.make_durable())?;
        self.remove_empty()?;
        Ok(self)
    }

    fn replay_segment(&mut self, number: u32, bytes: &[u8], next: u64) -> Result<SegmentEnd, StoreError> {
        let salted = number >= self.manifest.salted_from;
        let mut fault = None;
        let found = read_segment(bytes, number, salted, next, |record| {
            if record.frame >= self.manifest.journal.next_frame {
                self.engine.journal.note_replayed((RECORD_HEADER + record.body.len()) as u64);
            }
            match self.apply(number, &record) {
                Ok(()) => true,
                Err(error) => {
                    fault = Some(error);
                    false
                }
            }
        });
        fault.map_or(Ok(found), Err)
    }

    /// Removes segments without a whole frame: an empty segment before a used one would look like damage.
    fn remove_empty(&mut self) -> Result<(), StoreError> {
        let empty = self.engine.journal.remove_empty();
        if empty.is_empty() {
            return Ok(());
        }
        for number in empty {
            let name = format!("journal-{number}");
            self.disk
                .remove(&self.dir.join(&name))
                .map_err(|error| io_error(&format!("removing {name}"), error))?;
        }
        self.disk.sync_dir(self.dir).map_err(|error| io_error("syncing the data folder", error))
    }

    fn apply(&mut self, segment: u32, record: &Record<'_>) -> Result<(), StoreError> {
        let counted = record.frame >= self.manifest.journal.next_frame;
        match record.kind {
            RecordKind::Accepted | RecordKind::Changed => {
                let position = Position::new(segment, record.offset);
                self.apply_entry(position, record.body, counted && record.kind == RecordKind::Accepted)
            }
            RecordKind::Ended => self.apply_end(segment, record.body, counted),
            RecordKind::Lane => {
                let (number, lane) =
                    read_lane(record.body).ok_or_else(|| damaged("a lane in the journal cannot be read"))?;
                // A smaller number that is not known belongs to a lane that was forgotten.
                if self.engine.lanes.is_new(number) {
                    self.engine.lanes.add(number, lane);
                }
                self.engine.lanes.named_in(number, segment);
                Ok(())
            }
            RecordKind::Paused => {
                let number =
                    record.body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
                if let Some(number) = number
                    && let Some(mut state) = self.engine.lanes.get_mut(number)
                {
                    state.set_paused(record.body.get(4) == Some(&1));
                    self.engine.lanes.named_in(number, segment);
                }
                Ok(())
            }
        }
    }

    fn apply_entry(&mut self, position: Position, bytes: &[u8], accepted: bool) -> Result<(), StoreError> {
        let unread = |_| {
            damaged(format!(
                "the entry at byte {} of journal-{} cannot be read",
                position.offset(),
                position.file
            ))
        };
        let peek = Peek::framed(bytes).map_err(unread)?;
        let hash = hash_of(peek).ok_or_else(|| unread(entry::Garbled))?;
        if self.engine.lanes.get(peek.lane()).is_none() {
            return Err(damaged(format!(
                "the entry at byte {} of journal-{} names lane {}, which is not known; restore the folder from a backup",
                position.offset(),
                position.file,
                peek.lane()
            )));
        }
        self.engine.lanes.named_in(peek.lane(), position.file);
        let version = peek.version();
        self.engine.sequences.saw_version(version);
        self.engine.ever.accepted += u64::from(accepted);
        let known = self.find(hash, peek.id_text());
        if known.as_ref().is_some_and(|(_, old)| version <= version_of(old)) {
            return Ok(());
        }
        self.engine.journal.count(position.file, true);
        match known {
            Some((old, old_bytes)) => {
                // If the old entry is damaged, this one has the lane and the time: it is of the same message.
                let counted_as = if old_bytes.is_empty() { bytes } else { &old_bytes };
                self.uncount_as(hash, old, counted_as, old_bytes.is_empty());
                self.engine.forget_position(old, old_bytes.len() as u64);
                let marks = self.engine.place_entry(hash, position, bytes);
                self.engine.index.replace(hash, old, position, Some(marks));
            }
            None => {
                let marks = self.engine.place_entry(hash, position, bytes);
                self.engine.index.insert(hash, position, marks);
            }
        }
        Ok(())
    }

    fn apply_end(&mut self, segment: u32, bytes: &[u8], counted: bool) -> Result<(), StoreError> {
        let unread = || damaged("the end of a message in the journal cannot be read");
        let peek = EndPeek::at(bytes).map_err(|_| unread())?;
        let (hash, lane, version) = head_fields(peek.head()).ok_or_else(unread)?;
        self.engine.lanes.named_in(lane, segment);
        let id = peek
            .head()
            .get(entry::FIXED..entry::FIXED + usize::from(peek.head()[33]))
            .and_then(|id| std::str::from_utf8(id).ok());
        if let Some((position, old)) = self.find(hash, id.ok_or_else(unread)?)
            && (old.is_empty() || version_of(&old) == version)
        {
            let counted_as = if old.is_empty() { peek.head() } else { &old };
            self.uncount_as(hash, position, counted_as, old.is_empty());
            self.engine.forget_position(position, old.len() as u64);
            self.engine.index.remove(hash, position);
        }
        if counted || !self.engine.ended.knows(hash, bytes) {
            self.engine.ended.keep(hash, peek.ended(), bytes);
        }
        if counted {
            self.engine.count_end(peek.kind());
        }
        Ok(())
    }

    pub(super) fn uncount(&mut self, hash: u64, position: Position, bytes: &[u8]) {
        self.uncount_as(hash, position, bytes, false);
    }

    /// Takes the message at `position` out of the counts. `bytes` is its entry, or if that is damaged another entry or a head of the same
    /// message.
    fn uncount_as(&mut self, hash: u64, position: Position, bytes: &[u8], is_damaged: bool) {
        let Ok(peek) = Peek::of_head(bytes) else { return };
        let in_dead_table =
            self.engine.tables.get(position.file).is_some_and(|table| table.kind() == TableKind::Dead);
        let was_dead = if is_damaged { in_dead_table } else { peek.is_dead() };
        if was_dead {
            self.engine.uncount_dead(peek.lane());
        } else if let Some(marks) = self.engine.index.marks(hash, position) {
            self.engine.uncount(position, marks, peek);
        }
    }

    /// The live entry of an id, read from its position. One that is damaged, or that the disk cannot read, is returned without bytes: then only
    /// the hash says that it is the one. The journal has all that became of its message since; if that is nothing, the next claim finds out.
    pub(super) fn find(&self, hash: u64, id: &str) -> Option<(Position, Vec<u8>)> {
        let positions: Vec<Position> =
            self.engine.index.candidates(hash).map(|(position, _)| position).collect();
        for position in positions {
            let Some(file) = self.engine.file(position) else { continue };
            let Some(bytes) = read_or_warn(&*file, position) else { return Some((position, Vec::new())) };
            if Peek::framed(&bytes).is_ok_and(|peek| peek.id_text() == id) {
                return Some((position, bytes));
            }
        }
        None
    }
}

/// The entry at `position`; `None` if it is damaged or the disk cannot read it.
pub(super) fn read_or_warn(file: &dyn DiskFile, position: Position) -> Option<Vec<u8>> {
    let read = read_entry(file, position);
    if let Err(error) = &read
        && error.kind() != std::io::ErrorKind::InvalidData
    {
        let (file, offset) = (position.file, position.offset());
        tracing::warn!(file, offset, %error, "message unreadable while the store opens");
    }
    read.ok()
}

/// A frame is bad, and the journal goes on after it.
fn bad_frame(name: &str, at: u64, found: &SegmentEnd, last: Option<&LastFrame>) -> StoreError {
    let what = match last {
        // The frames here are whole, and one that should be before them is missing.
        Some(last) if found.last.is_none() => format!(
            "{} has no frame {} at byte {}, although {name} goes on after it",
            last.name, found.next, last.end
        ),
        _ => format!("{name} has a bad frame at byte {at} with valid ones after it"),
    };
    damaged(format!("{what}; restore the folder from a backup"))
}

fn hash_of(peek: Peek<'_>) -> Option<u64> {
    MessageId::parse(peek.id_text()).ok().map(|id| id.hash64())
}

pub(super) fn version_of(entry: &[u8]) -> u64 {
    Peek::framed(entry).map_or(0, Peek::version)
}
