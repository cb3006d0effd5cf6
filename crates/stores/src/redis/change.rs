//! Changing one's mind: cancel, reschedule, expire, replay, purge.

use duly_core::{
    MessageId, Now, State, Timestamp,
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
        answers(self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await?, what)
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
        answers(self.run_all((&scripts::CHANGE, now), shards, begin, put, changed).await?, what)
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

/// The answers. In a change of many messages, an unreadable one keeps its state and does not fail the others. A change of one unreadable
/// message is an error.
fn answers(replies: Vec<Result<Changed, Unreadable>>, what: &str) -> Result<Vec<Changed>, StoreError> {
    let is_named = replies.len() == 1 && what != "expire";
    let state = if matches!(what, "replay" | "purge") { State::Dead } else { State::Pending };
    let answer = |reply: Result<Changed, Unreadable>| match reply {
        Ok(changed) => Ok(changed),
        Err(Unreadable(id)) if is_named => Err(garbled(&format!("the message {id}"))),
        Err(Unreadable(id)) => {
            tracing::error!(id, "stored message unreadable; left as it is");
            Ok(Changed::TooLate(state))
        }
    };
    replies.into_iter().map(answer).collect()
}
