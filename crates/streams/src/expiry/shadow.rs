//! The shadow of timers: what Redis keeps beside keys that expire, and all its scripts.

use std::{sync::LazyLock, time::Duration};

use redis::{RedisResult, Script, ScriptInvocation, Value};
use redis_link::{Address, Link};

use super::{RESERVED_PREFIX, hash_tag};
use crate::{
    DeadLetterPolicy, Error,
    group::{dead_letter_args, truncate_reason},
};

/// The timers of one prefix.
#[derive(Clone)]
pub(super) struct Shadow {
    link: Link,
    prefix: String,
    /// Due times, values and states.
    keys: [String; 3],
    /// The stream of dead timers.
    dead: String,
    /// Prefix of the key where a process keeps its last claim; its name follows.
    claims: String,
}

/// How a claimed timer is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TimerSettlement {
    Done,
    /// Retry after this wait.
    Retry(Duration),
    /// Given up, with the reason.
    Dead(String),
}

/// How often a timer is tried, and what happens then.
#[derive(Debug, Clone)]
pub(super) struct AttemptLimit {
    /// 0 means no limit.
    pub(super) attempts: u32,
    pub(super) dead: DeadLetterPolicy,
}

/// The reply to a claim.
pub(super) struct ClaimReply {
    pub(super) claimed: Vec<ClaimedTimer>,
    /// Timers that were given up because their attempts are used up.
    pub(super) given_up: u64,
    /// Time until the next timer is due.
    pub(super) next: Option<Duration>,
}

/// A claimed timer.
pub(super) struct ClaimedTimer {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    pub(super) attempts: u32,
    pub(super) due_ms: u64,
}

/// Value, attempts and remaining milliseconds of a timer.
pub(super) type TimerState = (Vec<u8>, u32, u64);

macro_rules! script {
    ($file:literal) => {{
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
        &*SCRIPT
    }};
}

/// A script that can give a timer up.
macro_rules! dead_letter_script {
    ($file:literal) => {{
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                "#!lua flags=allow-oom\n",
                include_str!("dead.lua"),
                "\n",
                include_str!($file)
            ))
        });
        &*SCRIPT
    }};
}

impl Shadow {
    /// On a Cluster, the timers of a prefix and their keys are in one slot, so that the prefix must name it.
    pub(super) fn new(address: &Address, link: Link, prefix: &str) -> Result<Self, Error> {
        if prefix.is_empty() || prefix.starts_with(RESERVED_PREFIX) {
            return Err(Error::Invalid(format!("timers have a prefix, and not {RESERVED_PREFIX:?}")));
        }
        let tag = match (hash_tag(prefix), address) {
            (Some(tag), _) => tag,
            (None, Address::Cluster(_)) => {
                return Err(Error::Invalid(format!(
                    "on a cluster, timers and their keys are kept together by a part in braces: write the prefix as {:?}",
                    format!("{{{}}}:", prefix.trim_end_matches(':'))
                )));
            }
            (None, _) => prefix,
        };
        let key = |what: &str| format!("{RESERVED_PREFIX}timers:{{{tag}}}:{prefix}:{what}");
        let keys = ["due", "values", "states"].map(key);
        Ok(Self { link, prefix: prefix.to_owned(), keys, dead: key("dead"), claims: key("claims") })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A call with the keys of the prefix, and one more.
    fn call<'a>(&self, script: &'a Script, more: &str) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.key(more);
        call
    }

    /// A call with the key of one timer.
    fn call_for_key<'a>(&self, script: &'a Script, key: &str) -> Result<ScriptInvocation<'a>, Error> {
        if !key.starts_with(&self.prefix) {
            return Err(Error::Invalid(format!("the key {key:?} does not begin with {:?}", self.prefix)));
        }
        Ok(self.call(script, key))
    }

    async fn invoke<T: redis::FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Error> {
        let answer: RedisResult<T> = call.invoke_async(&mut self.link.clone()).await;
        answer.map_err(|error| Error::from_link(&self.link, &error))
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], ttl: Duration) -> Result<(), Error> {
        let mut call = self.call_for_key(script!("set.lua"), key)?;
        self.invoke(call.arg(value).arg(millis(ttl).max(1))).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<TimerState>, Error> {
        self.invoke(&self.call_for_key(script!("get.lua"), key)?).await
    }

    /// Cancels a timer. Returns its attempts, or the code of `cancel.lua`.
    pub(super) async fn cancel(&self, key: &str) -> Result<i64, Error> {
        self.invoke(&self.call_for_key(script!("cancel.lua"), key)?).await
    }

    fn claims_key(&self, process: &str) -> String {
        format!("{}:{process}", self.claims)
    }

    /// Removes the last claim of this process.
    pub(super) async fn leave(&self, process: &str) -> Result<(), Error> {
        let left = redis::cmd("DEL").arg(self.claims_key(process)).exec_async(&mut self.link.clone()).await;
        left.map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Claims due timers. A repeated call with the same id gets the same reply.
    pub(super) async fn claim(
        &self,
        count: usize,
        lease: Duration,
        (process, claim_id): (&str, &str),
        limit: &AttemptLimit,
    ) -> Result<ClaimReply, Error> {
        let (keep, max_len) = dead_letter_args(&limit.dead);
        let mut call = self.call(dead_letter_script!("claim.lua"), &self.dead);
        call.key(self.claims_key(process))
            .arg(count)
            .arg(millis(lease))
            .arg(claim_id)
            .arg(limit.attempts)
            .arg(keep)
            .arg(max_len);
        let answer: Vec<Value> = self.invoke(&call).await?;
        parse_claim(answer).map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Settles a claimed timer. Returns false if the claim was lost.
    pub(super) async fn settle(
        &self,
        claim_id: &str,
        key: &str,
        settlement: &TimerSettlement,
        limit: &AttemptLimit,
    ) -> Result<bool, Error> {
        let (what, why) = match settlement {
            TimerSettlement::Done => (String::new(), ""),
            TimerSettlement::Retry(wait) => (millis(*wait).to_string(), ""),
            TimerSettlement::Dead(why) => ("dead".into(), truncate_reason(why)),
        };
        let (keep, max_len) = dead_letter_args(&limit.dead);
        let mut call = self.call(dead_letter_script!("settle.lua"), &self.dead);
        self.invoke(call.arg(claim_id).arg(key).arg(what).arg(why).arg(keep).arg(max_len)).await
    }

    /// Lists dead timers.
    pub(super) async fn dead(&self, from: &str, count: usize) -> Result<Vec<(String, Vec<Vec<u8>>)>, Error> {
        let mut range = redis::cmd("XRANGE");
        range.arg(&self.dead).arg(from).arg("+").arg("COUNT").arg(count);
        range.query_async(&mut self.link.clone()).await.map_err(|error| Error::from_link(&self.link, &error))
    }

    pub(super) async fn dead_count(&self) -> Result<u64, Error> {
        let count = redis::cmd("XLEN").arg(&self.dead).query_async(&mut self.link.clone()).await;
        count.map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Replays a dead timer. Returns the code of `replay.lua`.
    pub(super) async fn replay(&self, id: &str) -> Result<i64, Error> {
        let mut call = self.call(script!("replay.lua"), &self.dead);
        self.invoke(call.arg(id)).await
    }

    pub(super) async fn remove_dead(&self, id: &str) -> Result<bool, Error> {
        let removed = redis::cmd("XDEL").arg(&self.dead).arg(id).query_async(&mut self.link.clone()).await;
        removed.map_err(|error| Error::from_link(&self.link, &error))
    }
}

fn parse_claim(answer: Vec<Value>) -> RedisResult<ClaimReply> {
    let mut parts = answer.into_iter();
    let next: i64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(-1)))?;
    let given_up: u64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(0)))?;
    let mut claimed = Vec::new();
    while let (Some(key), Some(value), Some(attempts), Some(due)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    {
        claimed.push(ClaimedTimer {
            key: redis::from_redis_value(key)?,
            value: redis::from_redis_value(value)?,
            attempts: redis::from_redis_value(attempts)?,
            due_ms: redis::from_redis_value(due)?,
        });
    }
    Ok(ClaimReply { claimed, given_up, next: u64::try_from(next).ok().map(Duration::from_millis) })
}

/// Milliseconds, rounded up so that nothing is early.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
