//! What is kept beside keys that expire: every script of it.

use std::{sync::LazyLock, time::Duration};

use redis::{RedisResult, Script, ScriptInvocation, Value};
use redis_link::{Address, Link};

use super::{OWN, hash_tag};
use crate::{
    DeadLetterPolicy, Error,
    group::{dead_words, shorten},
};

/// The timers of one prefix.
#[derive(Clone)]
pub(super) struct Shadow {
    link: Link,
    prefix: String,
    /// When each is due, its value, its state.
    keys: [String; 3],
    /// The stream of those that were given up.
    dead: String,
    /// Where each process keeps what it claimed last: this, and the name that it has drawn.
    claims: String,
}

/// What becomes of one that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// Due again after so long.
    Again(Duration),
    /// Given up, and why.
    Dead(String),
}

/// How often one is tried, and what becomes of it then.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    /// 0: for ever.
    pub(super) attempts: u32,
    pub(super) dead: DeadLetterPolicy,
}

/// What a claim was answered.
pub(super) struct Claims {
    pub(super) claimed: Vec<Claimed>,
    /// How many were given up instead.
    pub(super) buried: u64,
    /// How long until the next is due.
    pub(super) next: Option<Duration>,
}

/// One that was claimed.
pub(super) struct Claimed {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    pub(super) tries: u32,
    pub(super) due_ms: u64,
}

/// What is known of one.
pub(super) type Known = (Vec<u8>, u32, u64);

macro_rules! script {
    ($file:literal) => {{
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
        &*SCRIPT
    }};
}

/// One that can give a timer up.
macro_rules! ending {
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
    /// On a cluster, the timers of a prefix and their keys are in one slot, which the prefix has to name.
    pub(super) fn new(address: &Address, link: Link, prefix: &str) -> Result<Self, Error> {
        if prefix.is_empty() || prefix.starts_with(OWN) {
            return Err(Error::Invalid(format!("timers have a prefix, and not {OWN:?}")));
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
        let key = |what: &str| format!("{OWN}timers:{{{tag}}}:{prefix}:{what}");
        let keys = ["due", "values", "states"].map(key);
        Ok(Self { link, prefix: prefix.to_owned(), keys, dead: key("dead"), claims: key("claims") })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// With the keys of all timers, and one more.
    fn call<'a>(&self, script: &'a Script, more: &str) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.key(more);
        call
    }

    /// With the key of one timer.
    fn call_of<'a>(&self, script: &'a Script, key: &str) -> Result<ScriptInvocation<'a>, Error> {
        if !key.starts_with(&self.prefix) {
            return Err(Error::Invalid(format!("the key {key:?} does not begin with {:?}", self.prefix)));
        }
        Ok(self.call(script, key))
    }

    async fn ask<T: redis::FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Error> {
        let answer: RedisResult<T> = call.invoke_async(&mut self.link.clone()).await;
        answer.map_err(|error| Error::over(&self.link, &error))
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], ttl: Duration) -> Result<(), Error> {
        let mut call = self.call_of(script!("set.lua"), key)?;
        self.ask(call.arg(value).arg(millis(ttl).max(1))).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Known>, Error> {
        self.ask(&self.call_of(script!("get.lua"), key)?).await
    }

    /// Its tries so far; or what cancel.lua says instead.
    pub(super) async fn cancel(&self, key: &str) -> Result<i64, Error> {
        self.ask(&self.call_of(script!("cancel.lua"), key)?).await
    }

    fn claims_of(&self, process: &str) -> String {
        format!("{}:{process}", self.claims)
    }

    /// This process claims no more.
    pub(super) async fn leave(&self, process: &str) -> Result<(), Error> {
        let left = redis::cmd("DEL").arg(self.claims_of(process)).exec_async(&mut self.link.clone()).await;
        left.map_err(|error| Error::over(&self.link, &error))
    }

    /// What is due. Asked for again under the same name, it is the same.
    pub(super) async fn claim(
        &self,
        count: usize,
        lease: Duration,
        (process, name): (&str, &str),
        limit: &Limit,
    ) -> Result<Claims, Error> {
        let (keep, most) = dead_words(&limit.dead);
        let mut call = self.call(ending!("claim.lua"), &self.dead);
        call.key(self.claims_of(process))
            .arg(count)
            .arg(millis(lease))
            .arg(name)
            .arg(limit.attempts)
            .arg(keep)
            .arg(most);
        let answer: Vec<Value> = self.ask(&call).await?;
        read(answer).map_err(|error| Error::over(&self.link, &error))
    }

    /// False if the claim was lost.
    pub(super) async fn settle(
        &self,
        name: &str,
        key: &str,
        end: &End,
        limit: &Limit,
    ) -> Result<bool, Error> {
        let (what, why) = match end {
            End::Done => (String::new(), ""),
            End::Again(wait) => (millis(*wait).to_string(), ""),
            End::Dead(why) => ("dead".into(), shorten(why)),
        };
        let (keep, most) = dead_words(&limit.dead);
        let mut call = self.call(ending!("settle.lua"), &self.dead);
        self.ask(call.arg(name).arg(key).arg(what).arg(why).arg(keep).arg(most)).await
    }

    /// Those that were given up.
    pub(super) async fn dead(&self, from: &str, count: usize) -> Result<Vec<(String, Vec<Vec<u8>>)>, Error> {
        let mut range = redis::cmd("XRANGE");
        range.arg(&self.dead).arg(from).arg("+").arg("COUNT").arg(count);
        range.query_async(&mut self.link.clone()).await.map_err(|error| Error::over(&self.link, &error))
    }

    pub(super) async fn dead_count(&self) -> Result<u64, Error> {
        let count = redis::cmd("XLEN").arg(&self.dead).query_async(&mut self.link.clone()).await;
        count.map_err(|error| Error::over(&self.link, &error))
    }

    /// What replay.lua says.
    pub(super) async fn replay(&self, id: &str) -> Result<i64, Error> {
        let mut call = self.call(script!("replay.lua"), &self.dead);
        self.ask(call.arg(id)).await
    }

    pub(super) async fn remove_dead(&self, id: &str) -> Result<bool, Error> {
        let removed = redis::cmd("XDEL").arg(&self.dead).arg(id).query_async(&mut self.link.clone()).await;
        removed.map_err(|error| Error::over(&self.link, &error))
    }
}

fn read(answer: Vec<Value>) -> RedisResult<Claims> {
    let mut parts = answer.into_iter();
    let next: i64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(-1)))?;
    let buried: u64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(0)))?;
    let mut claimed = Vec::new();
    while let (Some(key), Some(value), Some(tries), Some(due)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    {
        claimed.push(Claimed {
            key: redis::from_redis_value(key)?,
            value: redis::from_redis_value(value)?,
            tries: redis::from_redis_value(tries)?,
            due_ms: redis::from_redis_value(due)?,
        });
    }
    Ok(Claims { claimed, buried, next: u64::try_from(next).ok().map(Duration::from_millis) })
}

/// Rounded up: never early.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
