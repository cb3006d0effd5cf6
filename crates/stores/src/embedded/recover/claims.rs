//! What was claimed when the process ended.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use bytes::Bytes;
use duly_core::store::{Holder, StoreError};

use super::{
    super::{
        disk::Disk,
        engine::Engine,
        entry::{self, Peek},
        flight::{ClaimLog, Flight, Held, Note, read_notes},
        index::{Marks, Place},
        lanes::NearKey,
        settle::lost_entry,
        table::{read_all, read_entry},
    },
    Opening, io_error, numbered,
    replay::version_of,
};

impl Opening<'_> {
    /// What was claimed: receipts stay valid, and what this process had in hand when it ended is lost.
    pub(super) fn restore_claims(&mut self) -> Result<(), StoreError> {
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
        // A later claim of the same version says that the earlier one was handed back: a power cut may have forgotten it.
        let latest: HashMap<(u64, u64), u64> =
            notes.values().map(|note| ((note.hash, note.version), note.token)).collect();
        notes.retain(|token, note| latest.get(&(note.hash, note.version)) == Some(token));
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
                self.lose(note, *place, bytes, note.alone || !blamed);
            }
        }
        self.write_held()
    }

    /// The entry that a note speaks of, if it is still that version of it.
    fn claimed(&self, note: &Note) -> Result<Option<(Place, Vec<u8>)>, StoreError> {
        let places: Vec<Place> = self.engine.index.candidates(note.hash).map(|(place, _)| place).collect();
        for place in places {
            let Some(file) = self.engine.file(place) else { continue };
            let bytes = match read_entry(&*file, place) {
                // Damaged: found again when its turn comes, and set aside then.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                read => read.map_err(|error| {
                    io_error(&format!("reading byte {} of file {}", place.offset(), place.file), &error)
                })?,
            };
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
            head: Held::remembered(peek.head()),
            bytes: bytes.len() as u32,
            rank: key.rank,
        };
        self.engine.flight.hold(lease_end, vec![(note.token, held)]);
    }

    fn lose(&mut self, note: &Note, place: Place, bytes: &[u8], counts: bool) {
        let data = Bytes::copy_from_slice(bytes);
        let number = Peek::framed(bytes).map_or(0, Peek::lane);
        let lane = self.engine.lanes.get(number).map(|state| state.lane.clone());
        let stored = lane.and_then(|lane| entry::decode(&data, &lane).ok());
        // What cannot be read waits again, and is set aside when its turn comes.
        let Some(stored) = stored else { return };
        let why = "the process ended with the message in hand";
        let mut new = lost_entry(stored, self.engine.now.wall(), note.alone, counts, number, why);
        self.uncount(note.hash, place, bytes);
        self.engine.change(note.hash, place, bytes.len() as u64, &mut new);
    }

    /// Begins the log of this opening.
    pub(super) fn new_claim_log(
        disk: &dyn Disk,
        dir: &Path,
        engine: &mut Engine,
    ) -> Result<ClaimLog, StoreError> {
        let number = engine.file_number();
        let name = format!("claims-{number}");
        let file =
            disk.open(&dir.join(&name)).map_err(|error| io_error(&format!("opening {name}"), &error))?;
        match file.allocate(ClaimLog::room(engine.options.segment_bytes)) {
            // What is there must open also on a full disk.
            Err(error) if !super::super::keeper::is_full(&error) => {
                return Err(io_error("laying down the claims log", &error));
            }
            _ => {}
        }
        engine.claim_files.push(number);
        Ok(ClaimLog::new(file))
    }

    /// Writes what is still claimed to the log of this opening.
    fn write_held(&self) -> Result<(), StoreError> {
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
        self.claims.write(held).map_err(|error| io_error("writing the claims log", &error))
    }
}
