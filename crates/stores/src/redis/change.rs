//! Changing one's mind: cancel, reschedule, expire, replay, purge.

use duly_core::{
    MessageId, Now, Timestamp,
    store::{Changed, StoreError},
};

use super::{RedisStore, call::by_shard, fault::garbled, keys::six, packed, scripts};

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
        readable(self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await?)
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
        readable(self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await?)
    }
}

/// A message that cannot be read, by its id.
struct Unreadable(String);

fn changed(reply: &[u8]) -> Option<Result<Changed, Unreadable>> {
    match reply {
        [b'd', maybe] => Some(Ok(Changed::Done { maybe_delivered: *maybe == 1 })),
        [b't', state] => packed::state_of(*state).map(Changed::TooLate).map(Ok),
        b"u" => Some(Ok(Changed::Unknown)),
        [b'g', id @ ..] => Some(Err(Unreadable(String::from_utf8_lossy(id).into_owned()))),
        _ => None,
    }
}

/// The answers, if all messages could be read. The others are changed nevertheless.
fn readable(replies: Vec<Result<Changed, Unreadable>>) -> Result<Vec<Changed>, StoreError> {
    let is_alone = replies.len() == 1;
    replies.into_iter().collect::<Result<_, _>>().map_err(|Unreadable(id)| {
        let error = garbled(&format!("the message {id}"));
        if is_alone { error } else { error.in_part() }
    })
}
