//! Taking messages.

use duly_core::{
    Now, StoredMessage,
    store::{Insert, Inserted, StoreError, StoreErrorKind},
};

use super::{
    RedisStore,
    call::{OfShard, by_shard},
    fault::for_caller,
    keys::time,
    packed,
    query::Bodies,
    scripts,
};
use crate::shared::room::{check_limit, waiting_ids};

impl RedisStore {
    pub(super) async fn accept(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let count = batch.len() as u64;
        if !self.room.fits(count, self.options.pending_max) {
            self.check_room(&batch).await?;
        }
        let items = batch.iter().map(|insert| (&insert.message, packed::pack_insert(insert, now.wall())));
        let shards = by_shard(&self.keys, items, |(message, _)| &message.id, |(_, packed)| packed.len());
        let put = |cmd: &mut redis::Cmd, (message, packed): &(&StoredMessage, Vec<u8>)| {
            cmd.arg(message.id.as_str()).arg(packed.as_slice());
        };
        let is_one_call = count == 1;
        self.room.send(count);
        let answers = if self.options.wait_replicas == 0 {
            self.run_all((&scripts::INSERT, now), shards, |_| (), put, inserted).await
        } else {
            self.insert_replicated(now, shards, put).await
        };
        self.room.answer(count);
        answers.map_err(|error| match error.kind {
            StoreErrorKind::Full => {
                let error = for_caller(error);
                if is_one_call { error } else { error.in_part() }
            }
            _ => error,
        })
    }

    /// Writes, and waits for the replicas, over one connection that nothing else goes over.
    async fn insert_replicated<T>(
        &self,
        now: Now,
        shards: Vec<OfShard<T>>,
        put: impl Fn(&mut redis::Cmd, &T) + Sync,
    ) -> Result<Vec<Inserted>, StoreError> {
        let candidate = self.replicated_connection().await?;
        let link = candidate.connection.clone();
        let answers = self.run_all_over(link, (&scripts::INSERT, now), shards, |_| (), put, inserted).await;
        let answers = answers.inspect_err(|_| self.replicas.forget_idle())?;
        self.await_replicas(candidate).await?;
        Ok(answers)
    }

    /// The exact look, for when the limit may be near. Known ids and dead letters need no room.
    async fn check_room(&self, batch: &[Insert]) -> Result<(), StoreError> {
        let (max, answered_before) = (self.options.pending_max, self.room.ask());
        let totals = self.all_totals().await?;
        self.room.update(answered_before, totals.pending + totals.in_flight);
        let stored = self.readable_records(&waiting_ids(batch), Bodies::Without).await?;
        check_limit(&totals, stored, max)
    }
}

fn inserted(reply: &[u8]) -> Option<Inserted> {
    match reply {
        b"a" => Some(Inserted::Accepted),
        b"c" => Some(Inserted::Conflict),
        [b'd', state, due @ ..] => {
            Some(Inserted::Duplicate { due: time(due)?, state: packed::state_of(*state)? })
        }
        _ => None,
    }
}
