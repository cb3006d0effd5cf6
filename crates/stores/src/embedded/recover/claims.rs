//! Restores what was claimed when the last process ended.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

use duly_core::store::{Holder, StoreError};

use super::{
    super::{
        background::is_full,
        checkpoint::claim_records,
        claim_log::{ClaimLog, ClaimRecord, end_of_records, read_records},
        disk::Disk,
        engine::Engine,
        entry::Peek,
        in_flight::{ClaimedMessage, Loss},
        index::{Marks, Position},
        lanes::ReleaseKey,
        table::read_all,
    },
    Opening, io_error, numbered,
    replay::{read_or_warn, version_of},
};

impl Opening<'_> {
    /// Restores claims. Receipts of clients stay valid. What the last process itself had claimed is lost. Returns the number of the log of
    /// this opening if all claims are in it, so that the older ones are not needed.
    pub(super) fn restore_claims(&mut self) -> Result<Option<u32>, StoreError> {
        self.notice_missing_log();
        let mut records: BTreeMap<u64, ClaimRecord> = BTreeMap::new();
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
                newest = Some((file, end_of_records(&bytes))).filter(|(_, end)| *end < len);
            }
            for record in read_records(&bytes) {
                if record.released {
                    records.remove(&record.token);
                } else {
                    records.insert(record.token, record);
                }
            }
        }
        let has_room = self.claims.has_room().map_err(|error| io_error("reading the claims log", error))?;
        if let Some((file, end)) = newest.filter(|_| !has_room) {
            // The disk is full. The newest log still has allocated room: claims go on there for a while.
            self.claims = ClaimLog::at(file, end);
        }
        // Of two claims of the same version, the earlier one was released: a power cut may have lost the record of that.
        let latest: HashMap<(u64, u64), u64> =
            records.values().map(|record| ((record.hash, record.version), record.token)).collect();
        records.retain(|token, record| latest.get(&(record.hash, record.version)) == Some(token));
        // A power cut may have lost claims, and their tokens must not be used again. The number of the segment that this opening
        // laid down is new and durable: tokens begin with it.
        self.engine.in_flight.start_after(u64::from(self.engine.journal.current()) << 32);
        // A message that was claimed alone was suspected before: it is blamed, and the others are not.
        let mut blamed = false;
        for record in records.values().filter(|record| record.alone && !record.client) {
            blamed = blamed || self.claimed(record).is_some();
        }
        // One at a time: all bodies together may not fit into memory.
        for record in records.values() {
            let Some((position, bytes)) = self.claimed(record) else { continue };
            let loss = match record {
                ClaimRecord { client: true, .. } => Loss::Lease,
                ClaimRecord { alone: false, .. } if blamed => Loss::ProcessByOther,
                _ => Loss::Process,
            };
            self.hold(record, loss, position, &bytes);
        }
        // Without room, the older logs stay: they name all claims already.
        let is_whole = has_room && self.write_held()?;
        Ok(self.engine.in_flight.logs().last().copied().filter(|_| is_whole))
    }

    /// Somebody removed the log that the manifest names, with the claims of the last process: its messages are pending as if nobody had
    /// claimed them, as after a power cut. No message is lost by that, so the store opens.
    fn notice_missing_log(&mut self) {
        let number = self.manifest.claims;
        if number == 0 || numbered(self.names, "claims").contains(&number) {
            return;
        }
        self.engine.in_flight.note_missing_log();
        let (log, folder) = (format!("claims-{number}"), self.dir.display());
        tracing::error!(
            log,
            %folder,
            "claims log missing; messages that were in flight may be delivered again without a counted attempt"
        );
    }

    /// The entry that a record names, if the message still has that version.
    fn claimed(&self, record: &ClaimRecord) -> Option<(Position, Vec<u8>)> {
        let positions: Vec<Position> =
            self.engine.index.candidates(record.hash).map(|(position, _)| position).collect();
        for position in positions {
            let Some(file) = self.engine.file(position) else { continue };
            // What cannot be read is pending, and is quarantined or set aside when its turn comes.
            let Some(bytes) = read_or_warn(&*file, position) else { continue };
            if version_of(&bytes) == record.version {
                return Some((position, bytes));
            }
        }
        None
    }

    /// Restores one claim. A client keeps its lease. The lease of a claim of the last process has ended: the claim is lost like any
    /// other whose lease ended, once there is room to write that.
    fn hold(&mut self, record: &ClaimRecord, loss: Loss, position: Position, bytes: &[u8]) {
        // A message that cannot be read is pending again, and is quarantined when its turn comes.
        let Ok(peek) = Peek::framed(bytes) else { return };
        let Ok(key) = ReleaseKey::of(peek) else { return };
        self.uncount(record.hash, position, bytes);
        let Some(marks) = self.engine.index.marks(record.hash, position) else { return };
        self.engine.index.set_marks(record.hash, position, Marks { claimed: true, ..marks });
        if let Some(mut lane) = self.engine.lanes.get_mut(peek.lane()) {
            lane.restore_claim();
        }
        let lease_ms = if record.client { record.lease_ms } else { 0 };
        let lease_end = self.engine.now.mono().saturating_add(Duration::from_millis(u64::from(lease_ms)));
        let holder = if record.client { Holder::Client } else { Holder::Process };
        let held = ClaimedMessage {
            id: key.id,
            hash: record.hash,
            position,
            lane: peek.lane(),
            ready: key.ready,
            version: record.version,
            holder,
            alone: record.alone,
            only: record.only,
            lease_end,
            loss,
            head: ClaimedMessage::remembered(peek.head()),
            bytes: bytes.len() as u32,
            rank: key.rank,
        };
        self.engine.in_flight.hold(lease_end, vec![(record.token, held)]);
    }

    /// Begins the log of this opening.
    pub(super) fn new_claim_log(
        disk: &dyn Disk,
        dir: &Path,
        engine: &mut Engine,
    ) -> Result<ClaimLog, StoreError> {
        let number = engine.sequences.file_number();
        let name = format!("claims-{number}");
        let file =
            disk.open(&dir.join(&name)).map_err(|error| io_error(&format!("opening {name}"), error))?;
        match file.allocate(ClaimLog::room(engine.options.segment_bytes)) {
            // The store must open on a full disk, too. A log that is allocated in part would only take room that is missing.
            Err(error) if is_full(&error) => file.set_len(0),
            laid_down => laid_down,
        }
        .map_err(|error| io_error("laying down the claims log", error))?;
        engine.in_flight.add_log(number);
        Ok(ClaimLog::new(file))
    }

    /// Writes what is claimed to the log of this opening, also what the last process had claimed: that is lost only once the journal says
    /// so. Returns whether all of it is there, also after a power cut; on a full disk it may not be.
    fn write_held(&self) -> Result<bool, StoreError> {
        match self.claims.write(claim_records(&self.engine)).and_then(|()| self.claims.sync()) {
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(io_error("writing the claims log", error)),
            Ok(()) => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{
        Options,
        test_bed::{Bed, message, now, tiny},
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

    /// Removes every claims log. Returns how many there were.
    fn remove_claims(folder: &std::path::Path) -> usize {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        let claims = files.filter(|file| file.file_name().to_string_lossy().starts_with("claims-"));
        claims.map(|file| std::fs::remove_file(file.path()).unwrap()).count()
    }

    #[test]
    fn a_claims_log_that_somebody_removed_after_a_crash_is_noticed() {
        testkit::block_on(async {
            // The first log of a new store, that of an opening without a checkpoint, and that of a checkpoint.
            for (restarts, has_checkpoint) in [(0, false), (2, false), (0, true)] {
                let folder = tempfile::tempdir().unwrap();
                let mut bed = Bed::open(folder.path(), tiny());
                bed.insert(0, [message("work", 0, 0, 10)]).await;
                bed.round();
                for _ in 0..restarts {
                    drop(bed);
                    bed = Bed::open(folder.path(), tiny());
                    assert!(!bed.shared.metrics().claims_log_missing, "a crash alone removes none");
                }
                assert_eq!(bed.claim(0, "work", 1).await.messages.len(), 1);
                if has_checkpoint {
                    bed.shared.checkpoint().unwrap();
                }
                drop(bed);
                assert!(remove_claims(folder.path()) > 0);
                let bed = Bed::open(folder.path(), tiny());
                assert!(bed.shared.metrics().claims_log_missing, "{restarts} restarts, {has_checkpoint}");
                // As after a power cut: the message is there, and the attempt is not counted.
                let again = bed.claim(0, "work", 1).await.messages;
                assert_eq!((again.len(), again[0].attempt), (1, 1));
            }
        });
    }
}
