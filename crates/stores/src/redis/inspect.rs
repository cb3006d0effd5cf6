//! What a Redis must be for messages to be safe in it.

use duly_core::store::StoreError;
use redis::InfoDict;

use super::{fault::sorted, link::Link};

/// The oldest version whose scripts can say what they do.
const VERSION_MIN: (u32, u32) = (7, 0);

/// Something about a Redis that loses messages, or that cannot work at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether `allow_volatile` lets it pass.
    pub may_be_allowed: bool,
}

/// Looks at the Redis behind `url`, for `doctor`. Says what its version is, and what is wrong with it.
pub async fn inspect(url: &str) -> Result<(String, Vec<Finding>), StoreError> {
    let mut link = Link::connect(url).await?;
    findings(&mut link).await
}

pub(super) async fn findings(link: &mut Link) -> Result<(String, Vec<Finding>), StoreError> {
    let info: InfoDict = redis::cmd("INFO").query_async(link).await.map_err(|error| sorted(&error))?;
    let text = |name: &str| info.get::<String>(name).unwrap_or_default();
    let version = text("redis_version");
    let found = judge(&version, &text("aof_enabled"), &text("maxmemory_policy"));
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
