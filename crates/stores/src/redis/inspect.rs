//! What a Redis must be for messages to be safe in it.

use duly_core::store::StoreError;
use redis::{InfoDict, Value};

use super::{
    connection::{Link, connect},
    fault::{garbled, sorted},
    keys::Keys,
    nodes::names_in,
    options::Options,
};

/// The oldest version whose scripts can say what they do.
const VERSION_MIN: (u32, u32) = (7, 0);

/// Something about a Redis that loses messages, or that cannot work at all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether `allow_volatile` lets it pass.
    pub may_be_allowed: bool,
}

/// What [`inspect`] saw.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The version of Redis.
    pub version: String,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// Whether a store of the usual name was ever made in it.
    pub has_store: bool,
    /// The nodes that work on that store.
    pub nodes: Vec<String>,
    /// What time Redis says it is, in milliseconds since the epoch.
    pub time_ms: u64,
}

/// Looks at the Redis behind `url`, for `doctor`. Changes nothing.
pub async fn inspect(url: &str) -> Result<Inspection, StoreError> {
    let mut link = connect(url).await?;
    let (version, findings) = findings(&mut link).await?;
    let keys = Keys::new(&Options::new(0).prefix, 1);
    let (seconds, micros): (u64, u64) =
        redis::cmd("TIME").query_async(&mut link).await.map_err(|error| sorted(&error))?;
    let has_store: bool =
        redis::cmd("EXISTS").arg(&keys.store).query_async(&mut link).await.map_err(|error| sorted(&error))?;
    let nodes = names_in(&mut link, &keys, seconds * 1_000_000 + micros).await?;
    Ok(Inspection { version, findings, has_store, nodes, time_ms: seconds * 1000 + micros / 1000 })
}

pub(super) async fn findings(link: &mut Link) -> Result<(String, Vec<Finding>), StoreError> {
    let answer: Value = redis::cmd("INFO").query_async(link).await.map_err(|error| sorted(&error))?;
    // A cluster answers for each of its nodes.
    let answers = match answer {
        Value::Map(nodes) => nodes.into_iter().map(|(_, info)| info).collect(),
        one => vec![one],
    };
    let mut version = String::new();
    let mut found: Vec<Finding> = Vec::new();
    for answer in answers {
        let info: InfoDict = redis::from_redis_value(answer).map_err(|_| garbled("INFO"))?;
        let text = |name: &str| info.get::<String>(name).unwrap_or_default();
        version = text("redis_version");
        let of_node = judge(&version, &text("aof_enabled"), &text("maxmemory_policy"));
        found.extend(of_node.into_iter().filter(|finding| !found.contains(finding)).collect::<Vec<_>>());
    }
    Ok((version, found))
}

fn judge(version: &str, aof: &str, policy: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < VERSION_MIN {
        found.push(Finding {
            what: format!("this is Redis {version}, and Duly needs 7.0 or newer"),
            remedy: "use a newer Redis".into(),
            may_be_allowed: false,
        });
    }
    if aof != "1" {
        found.push(Finding {
            what: "Redis keeps no append-only file: what was accepted since its last snapshot is lost when it stops"
                .into(),
            remedy: "set `appendonly yes` in redis.conf, or run `redis-cli CONFIG SET appendonly yes`".into(),
            may_be_allowed: true,
        });
    }
    // The volatile-* policies touch only keys that expire, and Duly has none of those.
    if policy.starts_with("allkeys-") {
        found.push(Finding {
            what: format!("Redis throws away keys when its memory is full (maxmemory-policy {policy}): messages would be lost"),
            remedy: "set `maxmemory-policy noeviction` in redis.conf, or by `redis-cli CONFIG SET`".into(),
            may_be_allowed: true,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_messages_is_found() {
        assert_eq!(judge("7.0.15", "1", "noeviction"), []);
        assert_eq!(judge("8.2.1", "1", "volatile-lru"), []);
        assert!(judge("7.2.0", "0", "noeviction")[0].remedy.contains("appendonly yes"));
        assert!(judge("7.2.0", "1", "allkeys-lru")[0].remedy.contains("noeviction"));
        let old = judge("6.2.7", "1", "noeviction");
        assert!(!old[0].may_be_allowed && old[0].what.contains("6.2.7"));
        assert_eq!(judge("", "", "allkeys-lfu").len(), 3, "what is not known is not trusted");
    }
}
