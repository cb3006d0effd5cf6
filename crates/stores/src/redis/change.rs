//! Changing one's mind: cancel, reschedule, expire, replay, purge.

use duly_core::{
    MessageId, Now, Timestamp,
    store::{Changed, StoreError},
};

use super::{RedisStore, call::by_shard, keys::six, packed, scripts};

impl RedisStore {
    /// Cancels, replays or purges.
    pub(super) async fn change(
        &self,
        now: Now,
        what: &str,
        ids: &[MessageId],
    ) -> Result<Vec<Changed>, StoreError> {
        let shards = by_shard(&self.keys, ids, |id| id, |id| id.as_str().len());
        let begin = |cmd: &mut redis::Cmd| {
            cmd.arg(what);
        };
        let put = |cmd: &mut redis::Cmd, id: &&MessageId| {
            cmd.arg(id.as_str()).arg("");
        };
        self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await
    }

    /// Reschedules or expires.
    pub(super) async fn move_all(
        &self,
        now: Now,
        what: &str,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        let shards = by_shard(&self.keys, batch, |(id, _)| id, |(id, _)| id.as_str().len());
        let begin = |cmd: &mut redis::Cmd| {
            cmd.arg(what);
        };
        let put = |cmd: &mut redis::Cmd, (id, due): &&(MessageId, Timestamp)| {
            cmd.arg(id.as_str()).arg(&six(*due));
        };
        self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await
    }
}

fn changed(reply: &[u8]) -> Option<Changed> {
    match reply {
        [b'd', maybe] => Some(Changed::Done { maybe_delivered: *maybe == 1 }),
        [b't', state] => packed::state_of(*state).map(Changed::TooLate),
        b"u" => Some(Changed::Unknown),
        _ => None,
    }
}
