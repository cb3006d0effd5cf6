//! Taking messages.

use std::{collections::HashSet, time::Duration};

use duly_core::{
    Message, Now, State,
    store::{Insert, Inserted, StoreError, StoreErrorKind},
};

use super::{RedisStore, call::by_shard, keys::time, look::Bodies, packed, scripts};

/// How long replicas may take to say that they have a message.
const REPLICAS_WITHIN: Duration = Duration::from_secs(2);

impl RedisStore {
    pub(super) async fn accept(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let count = batch.len() as u64;
        if !self.room.fits(count, self.options.pending_max) {
            self.check_room(&batch).await?;
        }
        let items = batch.iter().map(|insert| (&insert.message, packed::pack(&insert.message, now.wall())));
        let shards = by_shard(&self.keys, items, |(message, _)| &message.id, |(_, packed)| packed.len());
        let put = |cmd: &mut redis::Cmd, (message, packed): &(&Message, Vec<u8>)| {
            cmd.arg(message.id.as_str()).arg(packed.as_slice());
        };
        self.room.send(count);
        let answers = self.run_all((&scripts::INSERT, now), shards, |_| (), put, inserted).await;
        self.room.answer(count);
        let answers = answers?;
        self.await_replicas().await?;
        Ok(answers)
    }

    /// Waits until as many replicas have what was just written as the options ask for.
    async fn await_replicas(&self) -> Result<(), StoreError> {
        let wanted = u64::from(self.options.wait_replicas);
        if wanted == 0 {
            return Ok(());
        }
        // The same connection as the writes: Redis waits for what came over it.
        let mut cmd = redis::cmd("WAIT");
        let have: u64 = self.ask(cmd.arg(wanted).arg(REPLICAS_WITHIN.as_millis() as u64)).await?;
        if have < wanted {
            let what = format!(
                "Redis has it, but only {have} of {wanted} replicas said so within {REPLICAS_WITHIN:?}; send it again with the \
                 same id when they are back"
            );
            return Err(StoreError::new(StoreErrorKind::Unavailable, what));
        }
        Ok(())
    }

    /// The exact look, for when the limit may be near. Known ids need no room.
    async fn check_room(&self, batch: &[Insert]) -> Result<(), StoreError> {
        let (max, asked) = (self.options.pending_max, self.room.ask());
        let books = self.all_books().await?;
        self.room.tell(asked, books.pending + books.in_flight);
        let ids: HashSet<_> = batch.iter().map(|insert| insert.message.id.clone()).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let known = self.records(&ids, Bodies::Without).await?;
        let is_new = |state: Option<State>| state.is_none_or(|state| state == State::Cancelled);
        let new = known.into_iter().filter(|known| is_new(known.as_ref().map(|record| record.state))).count();
        if books.pending + new as u64 > max {
            let what = format!("{} messages are waiting and the limit is {max}", books.pending);
            return Err(StoreError::new(StoreErrorKind::TooMany, what));
        }
        Ok(())
    }
}

fn inserted(said: &[u8]) -> Option<Inserted> {
    match said {
        b"a" => Some(Inserted::Accepted),
        b"c" => Some(Inserted::Conflict),
        [b'd', state, due @ ..] => {
            Some(Inserted::Duplicate { due: time(due)?, state: packed::state_of(*state)? })
        }
        _ => None,
    }
}
