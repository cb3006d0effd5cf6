//! The Redis that messages are taken from.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Script, Value, aio::ConnectionLike};
use redis_link::{Address, KeyspacePart, Link, Reach};

use super::super::{clock, patience::BACKOFF_MAX};
use crate::Failure;

/// Keys asked for at once.
const KEYS_PAGE: usize = 1_000;
/// Calls under way at once where one server cannot take them all together.
const TOGETHER: usize = 256;
/// Members that one script removes: it must not hold up Redis.
const REMOVED_AT_ONCE: usize = 100;
/// Keys that Duly or duly-streams keep in Redis are not imported.
const OWN: &[u8] = b"duly:";

/// Member and score, as Redis writes them.
type ScoredMember = (Vec<u8>, Vec<u8>);

/// A member of a sorted set.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) score: f64,
    /// As Redis wrote it.
    written: Vec<u8>,
}

/// The result of removing a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Done,
    /// It was not there any more.
    Gone,
    /// It has another score by now, and was left.
    Moved,
}

/// Where the bytes of a message are, if not in the member.
#[derive(Debug, Clone)]
pub(super) enum BodyAt {
    /// The value of this key.
    Key(Vec<u8>),
    /// A field of this hash.
    Field(Vec<u8>, Vec<u8>),
}

/// A connection that comes back by itself, and patience while it does.
pub(super) struct Source {
    link: Link,
    shown: String,
    patience: Duration,
    remove: Script,
}

impl Source {
    pub(super) async fn connect(url: &str, patience: Duration) -> Result<Self, Failure> {
        let address = Address::parse(url)
            .map_err(|what| Failure::usage(format!("--from is not the address of a Redis: {what}")))?;
        let shown = format!("{address:?}");
        let link = Link::connect(&address, &Reach::QUICK)
            .await
            .map_err(|error| failure(&format!("Redis at {shown} cannot be reached"), &error))?;
        Ok(Self { link, shown, patience, remove: Script::new(include_str!("remove.lua")) })
    }

    /// The sorted sets whose names match, each once, and how many members they have.
    pub(super) async fn sets(&mut self, pattern: &str) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
        let parts = self.patient("CLUSTER SLOTS", async |link| link.parts().await).await?;
        let mut keys = BTreeSet::new();
        for part in parts {
            self.scan_keys(part, pattern, &mut keys).await?;
        }
        let keys: Vec<_> = keys.into_iter().filter(|key| !key.starts_with(OWN)).collect();
        let commands = keys.iter().map(|key| command("ZCARD", key)).collect();
        let counts = self.all(commands).await?;
        keys.into_iter()
            .zip(counts)
            .map(|(key, count)| {
                Ok((key, u64::from_redis_value(count?).map_err(|error| self.garbled(&error.into()))?))
            })
            .collect()
    }

    async fn scan_keys(
        &mut self,
        part: KeyspacePart,
        pattern: &str,
        keys: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), Failure> {
        let mut cursor = b"0".to_vec();
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg(pattern)
                .arg("COUNT")
                .arg(KEYS_PAGE)
                .arg("TYPE")
                .arg("zset");
            let answer =
                self.patient("SCAN", async |link| link.ask_part(part, command.clone()).await).await?;
            let (next, page): (Vec<u8>, Vec<Vec<u8>>) =
                FromRedisValue::from_redis_value(answer).map_err(|error| self.garbled(&error.into()))?;
            keys.extend(page);
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// The next page of a set, and where the one after it begins: nowhere if this was the last. A member that stays is
    /// told at least once, also while others are removed.
    pub(super) async fn members(
        &mut self,
        key: &[u8],
        cursor: &[u8],
        count: usize,
    ) -> Result<(Vec<Member>, Option<Vec<u8>>), Failure> {
        let mut zscan = command("ZSCAN", key);
        zscan.arg(cursor).arg("COUNT").arg(count);
        let answer = self.patient("ZSCAN", async |link| link.req_packed_command(&zscan).await).await?;
        let (next, page): (Vec<u8>, Vec<ScoredMember>) =
            FromRedisValue::from_redis_value(answer).map_err(|error| self.garbled(&error.into()))?;
        let member = |(name, written): ScoredMember| {
            let score = std::str::from_utf8(&written).ok().and_then(|text| text.parse().ok());
            Member { name, score: score.unwrap_or(f64::NAN), written }
        };
        Ok((page.into_iter().map(member).collect(), Some(next).filter(|next| next != b"0")))
    }

    /// The values at these keys: bytes, nothing, or the error of reading them.
    pub(super) async fn bodies(
        &mut self,
        places: &[BodyAt],
    ) -> Result<Vec<Result<Option<Vec<u8>>, String>>, Failure> {
        let asked = places.iter().map(|place| match place {
            BodyAt::Key(key) => command("GET", key),
            BodyAt::Field(key, field) => {
                let mut get = command("HGET", key);
                get.arg(field);
                get
            }
        });
        let answers = self.all(asked.collect()).await?;
        let read = |answer: Result<Value, Failure>| {
            let value = answer.map_err(|failure| failure.words)?;
            Option::<Vec<u8>>::from_redis_value(value).map_err(|error| error.to_string())
        };
        Ok(answers.into_iter().map(read).collect())
    }

    /// Removes these, each only if it has the score that it was read with.
    pub(super) async fn remove(&mut self, key: &[u8], members: &[&Member]) -> Result<Vec<Removed>, Failure> {
        let mut removed = Vec::with_capacity(members.len());
        for part in members.chunks(REMOVED_AT_ONCE) {
            let script = self.remove.clone();
            let answer: Vec<i64> = self
                .patient("EVALSHA", async |link| {
                    let mut call = script.key(key);
                    for member in part {
                        call.arg(&member.name).arg(&member.written);
                    }
                    call.invoke_async(link).await
                })
                .await?;
            removed.extend(answer.into_iter().map(|result| match result {
                1 => Removed::Done,
                0 => Removed::Gone,
                _ => Removed::Moved,
            }));
        }
        Ok(removed)
    }

    /// Asks all of these, some at a time. What Redis refuses is the answer to that one; no answer at all ends it.
    async fn all(&mut self, commands: Vec<Cmd>) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let mut answers = Vec::with_capacity(commands.len());
        for part in commands.chunks(TOGETHER) {
            let some = self
                .patient("a command", async |link| {
                    let each = part.iter().map(|command| {
                        let mut link = link.clone();
                        async move { link.req_packed_command(command).await?.extract_error() }
                    });
                    let answers = join_all(each).await;
                    match answers.iter().find_map(|answer| answer.as_ref().err().filter(|e| passes(e))) {
                        Some(error) => Err(error.clone()),
                        None => Ok(answers),
                    }
                })
                .await?;
            answers.extend(some.into_iter().map(|answer| {
                answer.map_err(|error| failure(&format!("Redis at {} refused it", self.shown), &error))
            }));
        }
        Ok(answers)
    }

    /// Tries again while Redis is unreachable. Everything asked for here may be asked twice.
    async fn patient<T>(
        &mut self,
        what: &str,
        mut ask: impl AsyncFnMut(&mut Link) -> RedisResult<T>,
    ) -> Result<T, Failure> {
        let (began, mut wait) = (clock::instant(), Duration::from_millis(100));
        loop {
            match ask(&mut self.link).await {
                Ok(answer) => return Ok(answer),
                Err(error) if passes(&error) && began.elapsed() < self.patience => {
                    clock::sleep(wait).await;
                    wait = (wait * 2).min(BACKOFF_MAX);
                }
                Err(error) => {
                    return Err(failure(&format!("Redis at {} did not do {what}", self.shown), &error));
                }
            }
        }
    }

    fn garbled(&self, error: &RedisError) -> Failure {
        Failure::failed(format!("Redis at {} answered what is not understood: {error}", self.shown))
    }
}

fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

/// Whether it may well be answered a little later.
fn passes(error: &RedisError) -> bool {
    let code = error.code();
    error.is_io_error()
        || error.is_cluster_error()
        || matches!(code, Some("LOADING" | "READONLY" | "MASTERDOWN" | "BUSY"))
}

fn failure(what: &str, error: &RedisError) -> Failure {
    let words = format!("{what}: {error}");
    if error.is_io_error() { Failure::unreachable(words) } else { Failure::failed(words) }
}

#[cfg(test)]
mod tests {
    use testkit::servers::redis::{self as server, Redis};

    use super::*;

    #[tokio::test]
    async fn only_what_still_has_its_score_is_removed() {
        if !server::installed() {
            return;
        }
        let redis = Redis::single();
        let scores = ["a", "0.1", "b", "1794852900123", "c", "1794852900.123", "d", "7", "e", "8"];
        for pair in scores.chunks(2) {
            redis.run::<()>(&["ZADD", "set", pair[1], pair[0]]);
        }
        // From a listpack and from a skip list scores come written differently.
        for encoding in ["listpack", "skiplist"] {
            if encoding == "skiplist" {
                redis.run::<()>(&["ZADD", "set", "9", &"long".repeat(100)]);
            }
            assert_eq!(redis.run::<String>(&["OBJECT", "ENCODING", "set"]), encoding);
            let mut source = Source::connect(&redis.url(), Duration::ZERO).await.ok().unwrap();
            let (members, next) = source.members(b"set", b"0", 100).await.ok().unwrap();
            assert!(next.is_none());
            redis.run::<()>(&["ZADD", "set", "7.5", "d"]);
            redis.run::<()>(&["ZREM", "set", "e"]);
            let mut members: Vec<_> = members.iter().filter(|member| member.name.len() == 1).collect();
            members.sort_by_key(|member| member.name.clone());
            let removed = source.remove(b"set", &members).await.ok().unwrap();
            let (done, absent, moved) = (Removed::Done, Removed::Gone, Removed::Moved);
            assert_eq!(removed, [done, done, done, moved, absent], "{encoding}");
            for pair in scores.chunks(2) {
                redis.run::<()>(&["ZADD", "set", pair[1], pair[0]]);
            }
        }
    }
}
