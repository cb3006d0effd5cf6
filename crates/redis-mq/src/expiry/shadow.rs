//! What is kept beside keys that expire: every script of it.

use std::{sync::LazyLock, time::Duration};

use redis::{RedisResult, Script, ScriptInvocation, Value};
use redis_link::{Address, Link};

use super::{OWN, hash_tag};
use crate::Error;

/// The timers of one prefix.
#[derive(Clone)]
pub(super) struct Shadow {
    link: Link,
    prefix: String,
    keys: [String; 3],
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
        let key = |what| format!("{OWN}timers:{{{tag}}}:{prefix}:{what}");
        Ok(Self { link, prefix: prefix.to_owned(), keys: ["due", "values", "states"].map(key) })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn call<'a>(&self, script: &'a Script, key: Option<&str>) -> Result<ScriptInvocation<'a>, Error> {
        let mut call = script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        if let Some(key) = key {
            if !key.starts_with(&self.prefix) {
                return Err(Error::Invalid(format!("the key {key:?} does not begin with {:?}", self.prefix)));
            }
            call.key(key);
        }
        Ok(call)
    }

    async fn ask<T: redis::FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Error> {
        let answer: RedisResult<T> = call.invoke_async(&mut self.link.clone()).await;
        answer.map_err(|error| Error::of(&error))
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], ttl: Duration) -> Result<(), Error> {
        let mut call = self.call(script!("set.lua"), Some(key))?;
        self.ask(call.arg(value).arg(millis(ttl).max(1))).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Known>, Error> {
        self.ask(&self.call(script!("get.lua"), Some(key))?).await
    }

    /// Its tries so far; or what cancel.lua says instead.
    pub(super) async fn cancel(&self, key: &str) -> Result<i64, Error> {
        self.ask(&self.call(script!("cancel.lua"), Some(key))?).await
    }

    /// What is due, and how long until the next is.
    pub(super) async fn claim(
        &self,
        count: usize,
        lease: Duration,
        name: &str,
    ) -> Result<(Vec<Claimed>, Option<Duration>), Error> {
        let mut call = self.call(script!("claim.lua"), None)?;
        let answer: Vec<Value> = self.ask(call.arg(count).arg(millis(lease)).arg(name)).await?;
        read(answer).map_err(|error| Error::of(&error))
    }

    /// Done, or due again after so long; false if the claim was lost.
    pub(super) async fn settle(&self, name: &str, key: &str, again: Option<Duration>) -> Result<bool, Error> {
        let again = again.map(|wait| millis(wait).to_string()).unwrap_or_default();
        let mut call = self.call(script!("settle.lua"), None)?;
        self.ask(call.arg(name).arg(key).arg(again)).await
    }
}

fn read(answer: Vec<Value>) -> RedisResult<(Vec<Claimed>, Option<Duration>)> {
    let mut parts = answer.into_iter();
    let next: i64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(-1)))?;
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
    Ok((claimed, u64::try_from(next).ok().map(Duration::from_millis)))
}

/// Rounded up: never early.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
