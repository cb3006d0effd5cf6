//! How scripts are called: one shard at a time in each, all shards at once.

use std::{collections::HashSet, time::Duration};

use duly_core::{
    MessageId, Now, Timestamp,
    store::{StoreError, StoreErrorKind},
};
use futures_util::future::{join_all, try_join_all};
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, ServerErrorKind, Value, aio::ConnectionLike};

use super::{
    RedisStore,
    fault::{data_lost, garbled, repeated, sorted},
    keys::Keys,
    scripts::Script,
};

/// How many items a script takes at once, and how many bytes: it must not hold Redis up for more than a millisecond or two.
pub(super) const ITEMS_MAX: usize = 200;
const BYTES_MAX: usize = 256 * 1024;
/// How long a part of the store that failed before may take to answer a sweep. Shorter than the shortest leases: a node says with every
/// sweep that it is there.
const PROBE_WITHIN: Duration = Duration::from_millis(500);
/// Messages due within this are announced to other nodes by a hint. Sweeps find later ones in time.
const HINT_WITHIN: Duration = Duration::from_secs(3);

/// The items of one shard, in parts of one script call each. Each item has its slot in the whole batch.
pub(super) struct OfShard<T> {
    shard: u16,
    parts: Vec<ShardBatch<T>>,
}

/// The answers of one shard by slot, up to its error.
pub(super) struct ShardAnswers<A> {
    pub(super) shard: u16,
    pub(super) answers: Vec<(usize, A)>,
    pub(super) error: Option<StoreError>,
}

/// How a script is asked about items, and how its answers are understood.
struct Asking<'a, T, A> {
    script: &'a Script,
    now: Now,
    begin: &'a (dyn Fn(&mut Cmd) + Sync),
    put: &'a (dyn Fn(&mut Cmd, &T) + Sync),
    read: &'a (dyn Fn(&[u8]) -> Option<A> + Sync),
}

struct ShardBatch<T> {
    items: Vec<(usize, T)>,
    ids: HashSet<MessageId>,
    bytes: usize,
}

impl<T> Default for ShardBatch<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ids: HashSet::new(), bytes: 0 }
    }
}

/// Sorts items by shard. No id is twice in one part, so that scripts need not think of it.
pub(super) fn by_shard<T>(
    keys: &Keys,
    items: impl IntoIterator<Item = T>,
    id: impl Fn(&T) -> &MessageId,
    bytes: impl Fn(&T) -> usize,
) -> Vec<OfShard<T>> {
    let mut shards: Vec<_> =
        (0..keys.shards()).map(|shard| OfShard { shard, parts: vec![ShardBatch::default()] }).collect();
    for (slot, item) in items.into_iter().enumerate() {
        let parts = &mut shards[usize::from(keys.shard_of(id(&item)))].parts;
        let len = bytes(&item);
        let full = |part: &ShardBatch<T>| {
            !part.items.is_empty()
                && (part.items.len() == ITEMS_MAX
                    || part.bytes + len > BYTES_MAX
                    || part.ids.contains(id(&item)))
        };
        if parts.last().is_none_or(full) {
            parts.push(ShardBatch::default());
        }
        if let Some(part) = parts.last_mut() {
            part.ids.insert(id(&item).clone());
            part.bytes += len;
            part.items.push((slot, item));
        }
    }
    shards.retain(|shard| !shard.parts[0].items.is_empty());
    shards
}

impl RedisStore {
    /// The beginning of a script's call: its own arguments follow.
    pub(super) fn call(&self, script: &Script, shard: u16, now: Now) -> Cmd {
        self.call_with(script, shard, now, &[])
    }

    /// The same, with more keys than those of the shard.
    pub(super) fn call_with(&self, script: &Script, shard: u16, now: Now, more: &[&str]) -> Cmd {
        let keys = self.keys.of(shard);
        let forgotten = now.wall().saturating_sub(self.options.retention);
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(script.get_hash()).arg(keys.len() + more.len()).arg(keys).arg(more);
        cmd.arg(&self.generation.name).arg(now.wall().as_millis()).arg(self.time.tick(now));
        cmd.arg(forgotten.as_millis()).arg(self.options.ended_max_per_shard());
        let horizon = now.wall().saturating_add(HINT_WITHIN);
        let mut sender = [0; 10];
        sender[..8].copy_from_slice(&self.options.instance.to_be_bytes());
        sender[8..].copy_from_slice(&shard.to_be_bytes());
        cmd.arg(&self.keys.hints).arg(horizon.as_millis()).arg(&sender);
        cmd
    }

    /// The same for a query, which needs no time.
    pub(super) fn read_call(&self, script: &Script, shard: u16) -> Cmd {
        self.call(script, shard, Now::new(0, duly_core::Monotonic::default()))
    }

    /// Runs a script; Redis may have forgotten it.
    pub(super) async fn run(&self, script: &Script, cmd: &Cmd) -> Result<Vec<Vec<u8>>, StoreError> {
        self.run_over(self.link.clone(), script, cmd).await
    }

    /// The same over another connection than that of all calls.
    async fn run_over(
        &self,
        mut link: impl ConnectionLike,
        script: &Script,
        cmd: &Cmd,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let forgotten = ErrorKind::Server(ServerErrorKind::NoScript);
        self.check_open()?;
        let mut answer = cmd.query_async::<Value>(&mut link).await;
        if answer.as_ref().is_err_and(|error| error.kind() == forgotten) {
            answer = script.in_full(cmd).query_async(&mut link).await;
        }
        strings(answer.map_err(|error| self.fault(&error))?)
    }

    /// Runs a plain command.
    pub(super) async fn ask<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, StoreError> {
        self.check_open()?;
        cmd.query_async(&mut self.link.clone()).await.map_err(|error| self.fault(&error))
    }

    /// Runs plain commands of one shard.
    pub(super) async fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, StoreError> {
        self.check_open()?;
        commands.query_async(&mut self.link.clone()).await.map_err(|error| self.fault(&error))
    }

    /// Asks a part of the store that failed before: whoever asks does not wait for long.
    pub(super) async fn soon<T>(
        &self,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = |_| StoreError::new(StoreErrorKind::Unanswered, "it still does not answer");
        tokio::time::timeout(PROBE_WITHIN, asking).await.map_err(late).and_then(|answer| answer)
    }

    /// Runs a script for many items, and returns its answers in their order.
    ///
    /// `begin` adds the arguments before the items, `put` those of an item, `read` parses an answer.
    pub(super) async fn run_all<T, A>(
        &self,
        call: (&Script, Now),
        shards: Vec<OfShard<T>>,
        begin: impl Fn(&mut Cmd) + Sync,
        put: impl Fn(&mut Cmd, &T) + Sync,
        read: impl Fn(&[u8]) -> Option<A> + Sync,
    ) -> Result<Vec<A>, StoreError> {
        self.run_all_over(self.link.clone(), call, shards, begin, put, read).await
    }

    /// The same over another connection than that of all calls.
    pub(super) async fn run_all_over<T, A>(
        &self,
        link: impl ConnectionLike + Clone,
        (script, now): (&Script, Now),
        shards: Vec<OfShard<T>>,
        begin: impl Fn(&mut Cmd) + Sync,
        put: impl Fn(&mut Cmd, &T) + Sync,
        read: impl Fn(&[u8]) -> Option<A> + Sync,
    ) -> Result<Vec<A>, StoreError> {
        let ask = Asking { script, now, begin: &begin, put: &put, read: &read };
        let (ask, link) = (&ask, &link);
        let calls: usize = shards.iter().map(|shard| shard.parts.len()).sum();
        let of_shard = |of: OfShard<T>| async move {
            let mut answers = Vec::new();
            self.run_parts(link, ask, of, &mut answers).await.map(|()| answers)
        };
        let mut answers: Vec<_> = match try_join_all(shards.into_iter().map(of_shard)).await {
            Ok(answers) => answers.into_iter().flatten().collect(),
            Err(error) if calls > 1 => return Err(error.in_part()),
            Err(error) => return Err(error),
        };
        answers.sort_by_key(|(slot, _)| *slot);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Runs a script for many items. Returns the answers and the error of each shard separately.
    pub(super) async fn run_by_shard<T, A>(
        &self,
        (script, now): (&Script, Now),
        shards: Vec<OfShard<T>>,
        begin: impl Fn(&mut Cmd) + Sync,
        put: impl Fn(&mut Cmd, &T) + Sync,
        read: impl Fn(&[u8]) -> Option<A> + Sync,
    ) -> Vec<ShardAnswers<A>> {
        let ask = &Asking { script, now, begin: &begin, put: &put, read: &read };
        let of_shard = |of: OfShard<T>| async move {
            let (shard, mut answers) = (of.shard, Vec::new());
            let asking = self.run_parts(&self.link, ask, of, &mut answers);
            let result = if self.faults.is_failing(shard) { self.soon(asking).await } else { asking.await };
            ShardAnswers { shard, answers, error: result.err() }
        };
        join_all(shards.into_iter().map(of_shard)).await
    }

    /// Runs one part after the other. Answers before an error are kept.
    async fn run_parts<T, A>(
        &self,
        link: &(impl ConnectionLike + Clone),
        ask: &Asking<'_, T, A>,
        OfShard { shard, parts }: OfShard<T>,
        answers: &mut Vec<(usize, A)>,
    ) -> Result<(), StoreError> {
        for part in parts {
            let mut cmd = self.call(ask.script, shard, ask.now);
            (ask.begin)(&mut cmd);
            part.items.iter().for_each(|(_, item)| (ask.put)(&mut cmd, item));
            let reply = self.run_over(link.clone(), ask.script, &cmd).await?;
            if reply.len() != part.items.len() {
                return Err(garbled("an answer"));
            }
            for ((slot, _), reply) in part.items.iter().zip(&reply) {
                answers.push((*slot, (ask.read)(reply).ok_or_else(|| garbled("an answer"))?));
            }
        }
        Ok(())
    }

    /// Sorts an error, and logs the first one of data that is damaged, and the first of data that is gone.
    fn fault(&self, error: &redis::RedisError) -> StoreError {
        let fault = if self.link.may_have_repeated(error) { repeated(error) } else { sorted(error) };
        self.log_once(fault)
    }

    /// The data of this store is not there.
    pub(super) fn data_lost(&self) -> StoreError {
        self.log_once(data_lost("another generation, or none"))
    }

    fn log_once(&self, fault: StoreError) -> StoreError {
        if self.generation.logged.is_first_of_its_kind(&fault) {
            tracing::error!(prefix = self.options.prefix, error = %fault, "store data damaged");
        }
        fault
    }
}

/// Scripts answer with strings only.
fn strings(answer: Value) -> Result<Vec<Vec<u8>>, StoreError> {
    let Value::Array(items) = answer else { return Err(garbled("an answer")) };
    items
        .into_iter()
        .map(|item| match item {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(garbled("an answer")),
        })
        .collect()
}

/// A number in an answer; scores may come as floating-point numbers.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|n| *n >= 0.0).map(|n| n as u64))
}

/// A time in an answer; an empty text is no time.
pub(super) fn time_in(text: &[u8]) -> Result<Option<Timestamp>, StoreError> {
    if text.is_empty() {
        return Ok(None);
    }
    number(text).map(|ms| Some(Timestamp::from_millis(ms))).ok_or_else(|| garbled("a time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts_of(ids: &[&str], bytes: usize) -> Vec<Vec<usize>> {
        let ids: Vec<_> = ids.iter().map(|id| MessageId::parse(id).unwrap()).collect();
        by_shard(&Keys::new("p", 1), &ids, |id| id, |_| bytes)
            .into_iter()
            .flat_map(|shard| shard.parts)
            .map(|part| part.items.into_iter().map(|(slot, _)| slot).collect())
            .collect()
    }

    #[test]
    fn no_id_is_twice_in_one_part_and_no_part_is_too_large() {
        assert_eq!(parts_of(&["a", "b", "a", "a", "c"], 1), [vec![0, 1], vec![2], vec![3, 4]]);
        assert_eq!(parts_of(&["a", "b", "c"], BYTES_MAX / 2), [vec![0, 1], vec![2]]);
        assert_eq!(parts_of(&["a", "b"], BYTES_MAX * 2), [[0], [1]]);
        let many: Vec<_> = (0..450).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(parts_of(&many, 1).iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 50]);
        assert!(parts_of(&[], 1).is_empty());
    }
}
