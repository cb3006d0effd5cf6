//! What was claimed when the process ended.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

use duly_core::store::{Holder, StoreError};

use super::{
    super::{
        background::is_full,
        disk::Disk,
        engine::Engine,
        entry::Peek,
        in_flight::{ClaimLog, Held, InFlight, Loss, Note, end_of_notes, read_notes},
        index::{Marks, Place},
        lanes::NearKey,
        table::{read_all, read_entry},
    },
    Opening, io_error, numbered,
    replay::version_of,
};

impl Opening<'_> {
    /// What was claimed: receipts stay valid, and what this process had in hand when it ended is lost.
    pub(super) fn restore_claims(&mut self) -> Result<(), StoreError> {
        let mut notes: BTreeMap<u64, Note> = BTreeMap::new();
        let mut newest = None;
        for number in
            numbered(self.names, "claims").into_iter().filter(|number| *number >= self.manifest.claims)
        {
            let name = format!("claims-{number}");
            let file = self.file(&name)?;
            let len = file.len().map_err(|error| io_error(&format!("reading {name}"), error))?;
            let bytes =
                read_all(&*file, 0, len).map_err(|error| io_error(&format!("reading {name}"), error))?;
            if len > 0 {
                newest = Some((file, end_of_notes(&bytes))).filter(|(_, end)| *end < len);
            }
            for note in read_notes(&bytes) {
                if note.released {
                    notes.remove(&note.token);
                } else {
                    notes.insert(note.token, note);
                }
            }
        }
        let has_room = self.claims.has_room().map_err(|error| io_error("reading the claims log", error))?;
        if let Some((file, end)) = newest.filter(|_| !has_room) {
            // The disk is full: claims go on for a while where there is room laid down for them.
            self.claims = ClaimLog::at(file, end);
        }
        // A later claim of the same version says that the earlier one was handed back: a power cut may have forgotten it.
        let latest: HashMap<(u64, u64), u64> =
            notes.values().map(|note| ((note.hash, note.version), note.token)).collect();
        notes.retain(|token, note| latest.get(&(note.hash, note.version)) == Some(token));
        // A power cut may have forgotten claims: tokens of this opening must be larger than any it gave out. The
        // number of the segment laid down for it is new and durable.
        let next_token = u64::from(self.engine.journal.current()) << 32;
        self.engine.flight = InFlight::starting_at(next_token);
        // If one was claimed alone because it was suspected, it is the one to blame.
        let mut blamed = false;
        for note in notes.values().filter(|note| note.alone && !note.client) {
            blamed = blamed || self.claimed(note)?.is_some();
        }
        // One at a time: all bodies together may be more than fits into memory.
        for note in notes.values() {
            let Some((place, bytes)) = self.claimed(note)? else { continue };
            let loss = match note {
                Note { client: true, .. } => Loss::Lease,
                Note { alone: false, .. } if blamed => Loss::ProcessByOther,
                _ => Loss::Process,
            };
            self.hold(note, loss, place, &bytes);
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
                    io_error(&format!("reading byte {} of file {}", place.offset(), place.file), error)
                })?,
            };
            if version_of(&bytes) == note.version {
                return Ok(Some((place, bytes)));
            }
        }
        Ok(None)
    }

    /// What a client holds stays its own. What the process held was lost with it: its lease is over, and it is dealt with like all
    /// such claims, once there is room for that.
    fn hold(&mut self, note: &Note, loss: Loss, place: Place, bytes: &[u8]) {
        // What cannot be read waits again, and is set aside when its turn comes.
        let Ok(peek) = Peek::framed(bytes) else { return };
        let Ok(key) = NearKey::of(peek) else { return };
        self.uncount(note.hash, place, bytes);
        let Some(marks) = self.engine.index.marks(note.hash, place) else { return };
        self.engine.index.set_marks(note.hash, place, Marks { claimed: true, ..marks });
        if let Some(lane) = self.engine.lanes.get_mut(peek.lane()) {
            lane.in_flight += 1;
        }
        let lease_ms = if note.client { note.lease_ms } else { 0 };
        let lease_end = self.engine.now.mono().saturating_add(Duration::from_millis(u64::from(lease_ms)));
        let holder = if note.client { Holder::Client } else { Holder::Process };
        let held = Held {
            id: key.id,
            hash: note.hash,
            place,
            lane: peek.lane(),
            ready: key.ready,
            version: note.version,
            holder,
            alone: note.alone,
            lease_end,
            loss,
            head: Held::remembered(peek.head()),
            bytes: bytes.len() as u32,
            rank: key.rank,
        };
        self.engine.flight.hold(lease_end, vec![(note.token, held)]);
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
            disk.open(&dir.join(&name)).map_err(|error| io_error(&format!("opening {name}"), error))?;
        match file.allocate(ClaimLog::room(engine.options.segment_bytes)) {
            // What is there must open also on a full disk. Half laid down it would only hold the room that is missing.
            Err(error) if is_full(&error) => file.set_len(0),
            laid_down => laid_down,
        }
        .map_err(|error| io_error("laying down the claims log", error))?;
        engine.claim_files.push(number);
        Ok(ClaimLog::new(file))
    }

    /// Writes what clients hold to the log of this opening. The older logs know it as well, for as long as they are needed.
    fn write_held(&self) -> Result<(), StoreError> {
        let held = self.engine.flight.iter().filter(|(_, held)| held.holder == Holder::Client);
        let held = held.map(|(token, held)| Note {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: u32::try_from(held.lease_end.since(self.engine.now.mono()).as_millis())
                .unwrap_or(u32::MAX),
            client: true,
            alone: held.alone,
            released: false,
        });
        match self.claims.write(held) {
            Err(error) if !is_full(&error) => Err(io_error("writing the claims log", error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{
        Options,
        test_bed::{Bed, message, now},
    };

    const BODY_BYTES: usize = 64 << 10;
    const COUNT: u64 = 40;

    #[test]
    fn what_the_process_had_in_hand_is_not_held_in_memory_while_the_store_opens() {
        testkit::block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let options =
                Options { segment_bytes: 4 << 20, checkpoint_bytes: u64::MAX, ..Options::default() };
            let mut bed = Bed::open(folder.path(), options.clone());
            for number in 0..COUNT {
                bed.insert(0, [message("work", number, 0, BODY_BYTES)]).await;
                bed.round();
            }
            let claimed = bed.claim(0, "work", COUNT as usize).await.messages;
            assert_eq!(claimed.len(), COUNT as usize);
            drop(bed);
            let (shared, lock) = super::super::open(folder.path(), options.clone(), now(0)).unwrap();
            let waiting = shared.engine().journal.waiting();
            assert!(waiting < BODY_BYTES, "{waiting} bytes wait for the journal");
            drop((shared, lock));
            let bed = Bed::open(folder.path(), options);
            let again = bed.claim(1, "work", COUNT as usize).await.messages;
            assert!(again.iter().all(|leased| leased.attempt == 2), "each try is counted once");
            assert_eq!(bed.shared.engine().totals().in_flight, again.len() as u64);
        });
    }
}
