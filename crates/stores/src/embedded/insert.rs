//! `insert`: takes new messages in.

use std::sync::Arc;

use duly_core::{
    Lane, Now, State,
    store::{Insert, Inserted, StoreError, StoreErrorKind},
};

use super::{SharedEngine, engine::Class, entry, index::Position, journal::Commit, options::PIECE_BYTES};

/// Approximate bytes of an entry without its body and its properties.
const ENTRY_GUESS: usize = 192;

fn guessed_bytes(insert: &Insert) -> usize {
    insert.message.bytes() + ENTRY_GUESS
}

/// How many messages at the head of a batch are inserted at once: as many as fit, or one. A batch of large messages is not in memory twice.
fn piece_len(batch: &[Insert]) -> usize {
    let mut bytes = 0;
    let fits = batch.iter().take_while(|insert| {
        bytes += guessed_bytes(insert);
        bytes <= PIECE_BYTES
    });
    fits.count().max(1)
}

/// One message of a batch while it is inserted.
struct InsertSlot {
    hash: u64,
    entry: std::ops::Range<usize>,
    is_new: bool,
}

impl SharedEngine {
    pub(super) async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut rest = &batch[..];
        let mut last = None;
        while !rest.is_empty() {
            let piece = piece_len(rest);
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
        let mut bytes = Vec::with_capacity(batch.iter().map(guessed_bytes).sum());
        let mut slots = Vec::with_capacity(batch.len());
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
            slots.push(InsertSlot { hash: message.id.hash64(), entry: start..bytes.len(), is_new: false });
        }
        let mut last = {
            let mut engine = self.engine_with_room(bytes.len() + batch.len() * 8, Class::Insert).await?;
            let mut wake_background = engine.tick(now);
            for (insert, item) in batch.iter().zip(&mut slots) {
                item.is_new = insert.id_is_generated
                    || (engine.index.candidates(item.hash).next().is_none()
                        && !engine.ended.may_know(item.hash));
            }
            let waits = |(insert, item): &(&Insert, &InsertSlot)| item.is_new && !insert.is_dead();
            let new = batch.iter().zip(&slots).filter(waits).count() as u64;
            if new > 0 && engine.totals().pending + new > engine.options.pending_max {
                let what =
                    format!("{} messages wait already, and no more are taken", engine.options.pending_max);
                return Err(StoreError::new(StoreErrorKind::TooMany, what));
            }
            for (insert, item) in batch.iter().zip(&slots).filter(|(_, item)| item.is_new) {
                engine.renumber(|| insert.message.lane(), &mut bytes[item.entry.clone()])?;
            }
            for (insert, item) in batch.iter().zip(&mut slots).filter(|(_, item)| item.is_new) {
                // The same id may have come earlier in this batch.
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
        let were_some = slots.iter().any(|item| item.is_new);
        for (insert, item) in batch.iter().zip(slots) {
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

    /// Inserts a message whose id, or another id with the same hash, is known.
    async fn insert_known(
        &self,
        now: Now,
        insert: &Insert,
        hash: u64,
        entry: &mut [u8],
    ) -> Result<(Inserted, Arc<Commit>), StoreError> {
        let content = insert.message.content_hash();
        loop {
            let before = self.positions(hash);
            if let Some(found) = self.find(&insert.message.id).await? {
                let first = found.peek()?;
                let same = first.content_hash() == content;
                let answer = if same {
                    Inserted::Duplicate { due: first.due(), state: found.state() }
                } else {
                    Inserted::Conflict
                };
                // The first insert may not be durable yet: its entry may be read from a table before its frame is synced.
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
            // If the same id was inserted by another caller meanwhile, look it up again.
            let after: Vec<Position> = engine.index.candidates(hash).map(|(position, _)| position).collect();
            if before == after {
                engine.renumber(|| insert.message.lane(), entry)?;
                engine.accept(hash, entry);
                self.wake(&mut engine);
                let commit = engine.journal.commit();
                return Ok((Inserted::Accepted, commit));
            }
        }
    }

    fn positions(&self, hash: u64) -> Vec<Position> {
        self.engine().index.candidates(hash).map(|(position, _)| position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::test_bed::message, *};

    #[test]
    fn a_piece_of_a_batch_is_as_large_as_its_bodies_and_properties() {
        let inserts = |body: usize, property: usize| -> Vec<Insert> {
            let one = |number| {
                let mut message = message("work", number, 0, body);
                message.properties.put("p", &"x".repeat(property));
                Insert::new(message)
            };
            (0..10).map(one).collect()
        };
        assert_eq!(piece_len(&inserts(10, 10)), 10);
        assert_eq!(piece_len(&inserts(PIECE_BYTES / 4, 0)), 3);
        assert_eq!(piece_len(&inserts(0, PIECE_BYTES / 4)), 3);
        assert_eq!(piece_len(&inserts(0, PIECE_BYTES)), 1);
    }
}
