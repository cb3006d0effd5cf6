//! Looks a message up by its id: a live one, or what is kept of an ended one.

use bytes::Bytes;
use duly_core::{
    Lane, MessageId, Record, State, Timestamp,
    store::{StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    entry::{self, Peek, Stored},
    index::{Marks, Position},
    table::read_entry,
};

/// A message found by its id.
pub(super) struct FoundMessage {
    pub(super) hash: u64,
    pub(super) position: Position,
    pub(super) marks: Marks,
    pub(super) lane: Lane,
    pub(super) bytes: Bytes,
}

impl FoundMessage {
    pub(super) fn stored(&self) -> Result<Stored, StoreError> {
        entry::decode(&self.bytes, &self.lane).map_err(|_| self.damaged())
    }

    pub(super) fn peek(&self) -> Result<Peek<'_>, StoreError> {
        Peek::framed(&self.bytes).map_err(|_| self.damaged())
    }

    fn damaged(&self) -> StoreError {
        let what = format!(
            "the entry at byte {} of file {} cannot be read",
            self.position.offset(),
            self.position.file
        );
        StoreError::new(StoreErrorKind::Damaged, what)
    }

    pub(super) fn state(&self) -> State {
        match Peek::framed(&self.bytes) {
            Ok(peek) if peek.is_dead() => State::Dead,
            _ if self.marks.claimed => State::InFlight,
            _ => State::Pending,
        }
    }
}

impl SharedEngine {
    /// Looks up a live message: reads each position that the index has for the hash, and compares the id.
    pub(super) async fn find(&self, id: &MessageId) -> Result<Option<FoundMessage>, StoreError> {
        let hash = id.hash64();
        'again: loop {
            let candidates: Vec<_> = {
                let engine = self.engine();
                engine.check_open()?;
                engine.index.candidates(hash).map(|(position, _)| (position, engine.file(position))).collect()
            };
            for (position, file) in candidates {
                self.written(position).await?;
                let read = file.map(|file| read_entry(&*file, position));
                let engine = self.engine();
                // If the background thread has moved it meanwhile, the bytes may be of another message.
                let Some(marks) = engine.index.marks(hash, position) else { continue 'again };
                let bytes = match read {
                    Some(Ok(bytes)) => Bytes::from(bytes),
                    _ => {
                        let what = format!(
                            "byte {} of file {} of the data folder cannot be read",
                            position.offset(),
                            position.file
                        );
                        return Err(StoreError::new(StoreErrorKind::Damaged, what));
                    }
                };
                let Ok(peek) = Peek::framed(&bytes) else { continue };
                if peek.id_text() == id.as_str()
                    && let Some(lane) = engine.lanes.get(peek.lane()).map(|state| state.lane().clone())
                {
                    return Ok(Some(FoundMessage { hash, position, marks, lane, bytes }));
                }
            }
            return Ok(None);
        }
    }

    /// The record kept of an ended message, with the hash of its content.
    pub(super) fn find_ended(
        &self,
        id: &MessageId,
        now: Timestamp,
    ) -> Result<Option<(Record, u64)>, StoreError> {
        let engine = self.engine();
        let lane_of = |number| engine.lanes.get(number).map(|state| state.lane().clone());
        let found = engine.ended.find(id.hash64(), id, lane_of).map_err(|error| {
            let bad = error.kind() == std::io::ErrorKind::InvalidData;
            let kind = if bad { StoreErrorKind::Damaged } else { StoreErrorKind::Unavailable };
            StoreError::new(kind, format!("reading a finished message failed: {error}")).with_source(error)
        })?;
        let kept_ms = engine.ended.retention_ms();
        Ok(found.filter(|(record, _)| {
            record.ended.is_some_and(|at| at.as_millis().saturating_add(kept_ms) >= now.as_millis())
        }))
    }
}
