//! Taking messages in, and changing one's mind about them.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::{
    DeadReason, Lane, LeaseLoss, MessageId, Now, Record, State, Timestamp,
    store::{Changed, Insert, Inserted, StoreError, StoreErrorKind},
};

use super::{
    Shared,
    engine::Class,
    entry::{self, Peek, Stored},
    index::{Marks, Place},
    journal::Commit,
    options::PIECE_BYTES,
    table::read_entry,
};

/// What an entry needs besides its body, about.
const ENTRY_GUESS: usize = 192;
/// What the journal needs for a changed message besides its entry, about.
const CHANGE_GUESS: usize = 128;

/// A message found by its id.
pub(super) struct Found {
    pub(super) hash: u64,
    pub(super) place: Place,
    pub(super) marks: Marks,
    pub(super) lane: Lane,
    pub(super) bytes: Bytes,
}

impl Found {
    pub(super) fn stored(&self) -> Result<Stored, StoreError> {
        entry::decode(&self.bytes, &self.lane).map_err(|_| self.damaged())
    }

    fn peek(&self) -> Result<Peek<'_>, StoreError> {
        Peek::framed(&self.bytes).map_err(|_| self.damaged())
    }

    fn damaged(&self) -> StoreError {
        let what =
            format!("the entry at byte {} of file {} cannot be read", self.place.offset(), self.place.file);
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

/// What is to become of a message that was found.
enum Change {
    End(State),
    Replace(Vec<u8>),
    /// It stays as it is.
    Refuse,
}

/// An insert on its way in.
struct Entering {
    hash: u64,
    entry: std::ops::Range<usize>,
    is_new: bool,
}

impl Shared {
    pub(super) async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut rest = &batch[..];
        let mut last = None;
        while !rest.is_empty() {
            // A piece at a time, so that a batch of large bodies does not stand in memory twice.
            let mut bytes = 0;
            let fits = rest.iter().take_while(|insert| {
                bytes += insert.message.body.len() + ENTRY_GUESS;
                bytes <= PIECE_BYTES
            });
            let piece = fits.count().max(1);
            let inserted = self.insert_piece(now, &rest[..piece], &mut answers).await;
            let were_some = answers.contains(&Inserted::Accepted);
            last = Some(inserted.map_err(|error| if were_some { error.in_part() } else { error })?);
            rest = &rest[piece..];
        }
        if let Some(commit) = last {
            self.committed(&commit).await?;
        }
        Ok(answers)
    }

    async fn insert_piece(
        &self,
        now: Now,
        batch: &[Insert],
        answers: &mut Vec<Inserted>,
    ) -> Result<Arc<Commit>, StoreError> {
        let mut bytes =
            Vec::with_capacity(batch.iter().map(|insert| insert.message.body.len() + ENTRY_GUESS).sum());
        let mut entering = Vec::with_capacity(batch.len());
        let mut known: Option<(Lane, u32)> = None;
        for insert in batch {
            let message = &insert.message;
            let number = match &known {
                Some((last, number)) if last.carries(message) => *number,
                _ => {
                    let lane = message.lane();
                    let number = self.lane_number(&lane)?;
                    known = Some((lane, number));
                    number
                }
            };
            if !entry::fits(message) {
                let what =
                    format!("message {:?} has a body or properties too large for this store", message.id);
                return Err(StoreError::new(StoreErrorKind::TooLarge, what));
            }
            let start = bytes.len();
            entry::encode_fresh(message, insert.past.as_deref(), now.wall(), number, &mut bytes);
            entering.push(Entering { hash: message.id.hash64(), entry: start..bytes.len(), is_new: false });
        }
        let mut last = {
            let mut engine = self.engine_with_room(bytes.len() + batch.len() * 8, Class::Insert).await?;
            let mut wake_background = engine.tick(now);
            for (insert, item) in batch.iter().zip(&mut entering) {
                item.is_new = insert.id_is_generated
                    || (engine.index.candidates(item.hash).next().is_none()
                        && !engine.ended.may_know(item.hash));
            }
            let waits = |(insert, item): &(&Insert, &Entering)| item.is_new && !insert.is_dead();
            let new = batch.iter().zip(&entering).filter(waits).count() as u64;
            if new > 0 && engine.totals().pending + new > engine.options.pending_max {
                let what =
                    format!("{} messages wait already, and no more are taken", engine.options.pending_max);
                return Err(StoreError::new(StoreErrorKind::TooMany, what));
            }
            for (insert, item) in batch.iter().zip(&entering).filter(|(_, item)| item.is_new) {
                engine.renumber(|| insert.message.lane(), &mut bytes[item.entry.clone()])?;
            }
            for (insert, item) in batch.iter().zip(&mut entering).filter(|(_, item)| item.is_new) {
                // The same id earlier in this batch is known by now.
                item.is_new = insert.id_is_generated || engine.index.candidates(item.hash).next().is_none();
                if item.is_new {
                    engine.accept(item.hash, &mut bytes[item.entry.clone()]);
                }
            }
            wake_background |= engine.wants_background();
            if wake_background {
                self.background.notify_one();
            }
            self.wake(&mut engine);
            engine.journal.commit()
        };
        let were_some = entering.iter().any(|item| item.is_new);
        for (insert, item) in batch.iter().zip(entering) {
            if item.is_new {
                answers.push(Inserted::Accepted);
                continue;
            }
            let known = self.insert_known(now, insert, item.hash, &mut bytes[item.entry]).await;
            let (answer, commit) = known.map_err(|error| if were_some { error.in_part() } else { error })?;
            answers.push(answer);
            last = commit;
        }
        Ok(last)
    }

    /// Inserts a message whose id, or one that looks like it, is known.
    async fn insert_known(
        &self,
        now: Now,
        insert: &Insert,
        hash: u64,
        entry: &mut [u8],
    ) -> Result<(Inserted, Arc<Commit>), StoreError> {
        let content = insert.message.content_hash();
        loop {
            let before = self.places(hash);
            if let Some(found) = self.find(&insert.message.id).await? {
                let first = found.peek()?;
                let same = first.content_hash() == content;
                let answer = if same {
                    Inserted::Duplicate { due: first.due(), state: found.state() }
                } else {
                    Inserted::Conflict
                };
                // It may have been moved to a table, from where it can be read before its frame is durable.
                return Ok((answer, self.engine().journal.commit()));
            }
            if let Some((record, first_content)) = self.find_ended(&insert.message.id, now.wall())?
                && record.state == State::Delivered
            {
                let same = first_content == content;
                let (due, state) = (record.message.due, record.state);
                let answer = if same { Inserted::Duplicate { due, state } } else { Inserted::Conflict };
                return Ok((answer, self.engine().journal.commit()));
            }
            let mut engine = self.engine();
            engine.check_open()?;
            // Somebody else may have brought the same id in the meantime: then look again.
            let after: Vec<Place> = engine.index.candidates(hash).map(|(place, _)| place).collect();
            if before == after {
                engine.renumber(|| insert.message.lane(), entry)?;
                engine.accept(hash, entry);
                self.wake(&mut engine);
                let commit = engine.journal.commit();
                return Ok((Inserted::Accepted, commit));
            }
        }
    }

    fn places(&self, hash: u64) -> Vec<Place> {
        self.engine().index.candidates(hash).map(|(place, _)| place).collect()
    }

    /// Looks a live message up by its id: its place is read and its name compared.
    pub(super) async fn find(&self, id: &MessageId) -> Result<Option<Found>, StoreError> {
        let hash = id.hash64();
        'again: loop {
            let candidates: Vec<_> = {
                let engine = self.engine();
                engine.check_open()?;
                engine.index.candidates(hash).map(|(place, _)| (place, engine.file(place))).collect()
            };
            for (place, file) in candidates {
                self.written(place).await?;
                let read = file.map(|file| read_entry(&*file, place));
                let engine = self.engine();
                // The background thread may have moved it while it was read.
                let Some(marks) = engine.index.marks(hash, place) else { continue 'again };
                let bytes = match read {
                    Some(Ok(bytes)) => Bytes::from(bytes),
                    _ => {
                        let what = format!(
                            "byte {} of file {} of the data folder cannot be read",
                            place.offset(),
                            place.file
                        );
                        return Err(StoreError::new(StoreErrorKind::Damaged, what));
                    }
                };
                let Ok(peek) = Peek::framed(&bytes) else { continue };
                if peek.id_text() == id.as_str()
                    && let Some(lane) = engine.lanes.get(peek.lane()).map(|state| state.lane.clone())
                {
                    return Ok(Some(Found { hash, place, marks, lane, bytes }));
                }
            }
            return Ok(None);
        }
    }

    /// What is kept of a finished message.
    pub(super) fn find_ended(
        &self,
        id: &MessageId,
        now: Timestamp,
    ) -> Result<Option<(Record, u64)>, StoreError> {
        let engine = self.engine();
        let lane_of = |number| engine.lanes.get(number).map(|state| state.lane.clone());
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

    pub(super) async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_each(now, ids, State::Pending, |_, _| Ok(Change::End(State::Cancelled))).await
    }

    pub(super) async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        // `Dead` as an end means: nothing is kept.
        self.change_each(now, ids, State::Dead, |_, _| Ok(Change::End(State::Dead))).await
    }

    pub(super) async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let ids: Vec<MessageId> = batch.iter().map(|(id, _)| id.clone()).collect();
        self.change_each(now, &ids, State::Pending, |found, place| {
            let mut stored = found.stored()?;
            stored.message.due = batch[place].1;
            stored.ready = batch[place].1;
            Ok(Change::Replace(self.encoded(&stored, found)?))
        })
        .await
    }

    pub(super) async fn expire(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let ids: Vec<MessageId> = batch.iter().map(|(id, _)| id.clone()).collect();
        self.change_each(now, &ids, State::Pending, |found, place| {
            let mut stored = found.stored()?;
            if stored.message.due != batch[place].1 {
                return Ok(Change::Refuse);
            }
            stored.dead = Some((DeadReason::Expired, now.wall()));
            Ok(Change::Replace(self.encoded(&stored, found)?))
        })
        .await
    }

    pub(super) async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_each(now, ids, State::Dead, |found, _| {
            let mut stored = found.stored()?;
            if stored.dead.is_some_and(|(reason, _)| reason == DeadReason::Damaged) {
                // Nobody knows what its content was.
                return Ok(Change::Refuse);
            }
            stored.message.due = now.wall();
            stored.ready = now.wall();
            stored.attempts = 0;
            stored.lost = LeaseLoss::None;
            stored.dead = None;
            Ok(Change::Replace(self.encoded(&stored, found)?))
        })
        .await
    }

    fn encoded(&self, stored: &Stored, found: &Found) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::with_capacity(found.bytes.len() + 64);
        entry::encode(stored, found.peek()?.lane(), &mut bytes);
        Ok(bytes)
    }

    /// Changes every message that is in the state `from`; the others are answered with theirs.
    async fn change_each(
        &self,
        now: Now,
        ids: &[MessageId],
        from: State,
        wish: impl Fn(&Found, usize) -> Result<Change, StoreError>,
    ) -> Result<Vec<Changed>, StoreError> {
        let mut answers: Vec<Option<Changed>> = vec![None; ids.len()];
        let changed = self.change_pieces(now, ids, from, wish, &mut answers).await;
        let were_some = answers.iter().any(|answer| matches!(answer, Some(Changed::Done { .. })));
        changed.map_err(|error| if were_some { error.in_part() } else { error })?;
        // For what was changed here, and for what was found to be changed already: that may be as new.
        let synced = self.sync_barrier().await;
        synced.map_err(|error| if were_some { error.when_under_way() } else { error })?;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Changed::Unknown)).collect())
    }

    async fn change_pieces(
        &self,
        now: Now,
        ids: &[MessageId],
        from: State,
        wish: impl Fn(&Found, usize) -> Result<Change, StoreError>,
        answers: &mut [Option<Changed>],
    ) -> Result<(), StoreError> {
        while answers.iter().any(Option::is_none) {
            let mut ready = Vec::new();
            // A piece at a time: all bodies together may be more than fits into memory.
            let mut bytes = 0;
            for (at, id) in ids.iter().enumerate() {
                if answers[at].is_some() {
                    continue;
                }
                if bytes >= PIECE_BYTES {
                    break;
                }
                match self.find(id).await? {
                    Some(found) if found.state() == from => match wish(&found, at)? {
                        Change::Refuse => answers[at] = Some(Changed::TooLate(from)),
                        wish => {
                            bytes += found.bytes.len() + CHANGE_GUESS;
                            ready.push((at, wish, found));
                        }
                    },
                    Some(found) => answers[at] = Some(Changed::TooLate(found.state())),
                    None => {
                        let ended = self.find_ended(id, now.wall())?;
                        answers[at] = Some(
                            ended.map_or(Changed::Unknown, |(record, _)| Changed::TooLate(record.state)),
                        );
                    }
                }
            }
            if ready.is_empty() {
                break;
            }
            self.admitted(bytes, Class::Change).await?;
            let mut engine = self.engine();
            engine.check_open()?;
            if engine.tick(now) || engine.wants_background() {
                self.background.notify_one();
            }
            for (at, wish, found) in ready {
                // Claimed, changed or moved while it was read: look again.
                if engine.index.marks(found.hash, found.place) != Some(found.marks) {
                    continue;
                }
                let peek = found.peek()?;
                answers[at] = Some(Changed::Done { maybe_delivered: peek.maybe_delivered() });
                apply(&mut engine, &found, peek, wish);
            }
            self.wake(&mut engine);
            drop(engine);
        }
        Ok(())
    }
}

fn apply(engine: &mut super::engine::Engine, found: &Found, peek: Peek<'_>, wish: Change) {
    if peek.is_dead() {
        engine.dead_count = engine.dead_count.saturating_sub(1);
        if let Some(lane) = engine.lanes.get_mut(peek.lane()) {
            lane.dead = lane.dead.saturating_sub(1);
        }
    } else {
        engine.uncount(found.place, found.marks, peek);
    }
    let bytes = found.bytes.len() as u64;
    match wish {
        Change::End(state) => engine.end(found.hash, found.place, bytes, state, None, peek.head()),
        Change::Replace(mut entry) => engine.change(found.hash, found.place, bytes, &mut entry),
        Change::Refuse => {}
    }
}
