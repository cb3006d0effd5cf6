//! `cancel`, `reschedule`, `expire`, `replay` and `purge`: each changes or ends messages found by their ids.

use duly_core::{
    DeadReason, LeaseLoss, MessageId, Now, State, Timestamp,
    store::{Changed, StoreError},
};

use super::{
    SharedEngine,
    ended::EndKind,
    engine::{Class, Engine},
    entry::{self, Peek, Stored},
    find::FoundMessage,
    options::PIECE_BYTES,
};

/// Bytes of the journal for a changed message besides its entry, about.
const CHANGE_GUESS: usize = 128;

/// The change to make to a message.
enum Change {
    /// A pending message ends.
    Cancel,
    /// A dead letter is deleted for good.
    Purge,
    /// It gets a new entry.
    Replace(Vec<u8>),
    /// It stays as it is.
    Refuse,
}

impl SharedEngine {
    pub(super) async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_each(now, ids, State::Pending, |_, _| Ok(Change::Cancel)).await
    }

    pub(super) async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.change_each(now, ids, State::Dead, |_, _| Ok(Change::Purge)).await
    }

    pub(super) async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let ids: Vec<MessageId> = batch.iter().map(|(id, _)| id.clone()).collect();
        self.change_each(now, &ids, State::Pending, |found, position| {
            let mut stored = found.stored()?;
            stored.message.due = batch[position].1;
            stored.ready = batch[position].1;
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
        self.change_each(now, &ids, State::Pending, |found, position| {
            let mut stored = found.stored()?;
            if stored.message.due != batch[position].1 {
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
                // Its content may be wrong.
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

    fn encoded(&self, stored: &Stored, found: &FoundMessage) -> Result<Vec<u8>, StoreError> {
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
        change: impl Fn(&FoundMessage, usize) -> Result<Change, StoreError>,
    ) -> Result<Vec<Changed>, StoreError> {
        let mut answers: Vec<Option<Changed>> = vec![None; ids.len()];
        let changed = self.change_pieces(now, ids, from, change, &mut answers).await;
        let were_some = answers.iter().any(|answer| matches!(answer, Some(Changed::Done { .. })));
        changed.map_err(|error| if were_some { error.in_part() } else { error })?;
        // Also for what was found to be changed already: that change may not be durable yet.
        let synced = self.sync_barrier().await;
        synced.map_err(|error| if were_some { error.when_under_way() } else { error })?;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Changed::Unknown)).collect())
    }

    async fn change_pieces(
        &self,
        now: Now,
        ids: &[MessageId],
        from: State,
        change: impl Fn(&FoundMessage, usize) -> Result<Change, StoreError>,
        answers: &mut [Option<Changed>],
    ) -> Result<(), StoreError> {
        while answers.iter().any(Option::is_none) {
            let mut ready = Vec::new();
            // A piece at a time: all bodies together may not fit into memory.
            let mut bytes = 0;
            for (at, id) in ids.iter().enumerate() {
                if answers[at].is_some() {
                    continue;
                }
                if bytes >= PIECE_BYTES {
                    break;
                }
                match self.find(id).await? {
                    Some(found) if found.state() == from => match change(&found, at)? {
                        Change::Refuse => answers[at] = Some(Changed::TooLate(from)),
                        change => {
                            bytes += found.bytes.len() + CHANGE_GUESS;
                            ready.push((at, change, found));
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
            for (at, change, found) in ready {
                // It was claimed, changed or moved while it was read: find it again.
                if engine.index.marks(found.hash, found.position) != Some(found.marks) {
                    continue;
                }
                let peek = found.peek()?;
                answers[at] = Some(Changed::Done { maybe_delivered: peek.maybe_delivered() });
                apply(&mut engine, &found, peek, change);
            }
            self.wake(&mut engine);
            drop(engine);
        }
        Ok(())
    }
}

fn apply(engine: &mut Engine, found: &FoundMessage, peek: Peek<'_>, change: Change) {
    if peek.is_dead() {
        engine.uncount_dead(peek.lane());
    } else {
        engine.uncount(found.position, found.marks, peek);
    }
    let (hash, position, bytes) = (found.hash, found.position, found.bytes.len() as u64);
    match change {
        Change::Cancel => engine.end(hash, position, bytes, EndKind::Cancelled, None, peek.head()),
        Change::Purge => engine.end(hash, position, bytes, EndKind::Purged, None, peek.head()),
        Change::Replace(mut entry) => engine.change(hash, position, bytes, &mut entry),
        Change::Refuse => {}
    }
}
