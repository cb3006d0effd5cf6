//! `[store]`: where messages wait.

use std::{path::PathBuf, time::Duration};

use duly::{days, hours, minutes, seconds};
use duly_stores::{
    EmbeddedConfig, RedisAndMysqlConfig, RedisConfig, SqlConfig, SqlServer, StoreConfig, redis, sql,
};

use super::{Secret, StoreSetup, section::Section, suggest::did_you_mean};

/// Settings that not every kind has, and the kinds that have them.
const SETTINGS: [(&str, &[&str]); 9] = [
    ("redis", &["redis", "redis+mysql"]),
    ("mysql", &["mysql", "redis+mysql"]),
    ("postgres", &["postgres"]),
    ("shards", &["redis", "mysql", "postgres", "redis+mysql"]),
    ("connections", &["mysql", "postgres", "redis+mysql"]),
    ("allow_volatile", &["redis", "mysql", "postgres", "redis+mysql"]),
    ("wait_replicas", &["redis"]),
    ("horizon", &["redis+mysql"]),
    ("index_max", &["redis+mysql"]),
];
/// The most connections that one node may hold.
const CONNECTIONS_MAX: u32 = 1000;

/// `data` is the folder of the embedded store.
pub(super) fn store(section: &mut Section<'_>, data: PathBuf) -> StoreSetup {
    let word =
        section.value("kind", "embedded".to_owned(), |node| known(node.text()?), |kind| kind.as_str().into());
    let faulty = section.reading.is_faulty("store.kind");
    for (key, kinds) in SETTINGS.into_iter().filter(|(_, kinds)| !kinds.contains(&word.as_str())) {
        if let Some(node) = section.take(key).filter(|_| !faulty) {
            let kinds: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
            let kinds = either(&kinds);
            let detail = format!("the {word} store has no such setting; it belongs to kind = {kinds}");
            section.fault(key, &node.origin, detail);
        }
    }
    let config = match word.as_str() {
        "redis" => StoreConfig::Redis(of_redis(section)),
        "mysql" => StoreConfig::Sql(of_sql(section, SqlServer::Mysql)),
        "postgres" => StoreConfig::Sql(of_sql(section, SqlServer::Postgres)),
        "redis+mysql" => StoreConfig::RedisAndMysql(of_redis_and_mysql(section)),
        "embedded" => StoreConfig::Embedded(EmbeddedConfig::new(data)),
        // A kind without an arm is refused: another store would be opened in its place.
        forgotten => {
            let detail =
                format!("this build cannot read the settings of the {forgotten} store; use another kind");
            section.fault("kind", &section.origin_of("kind"), detail);
            StoreConfig::Embedded(EmbeddedConfig::new(data))
        }
    };
    let default = StoreSetup::of(config);
    StoreSetup {
        lease: section.span("lease", default.lease, seconds(1)..=hours(12)),
        retention: section.span("retention", default.retention, Duration::ZERO..=days(3653)),
        retention_max: section.number("retention_max", default.retention_max, 0..=100_000_000),
        config: default.config,
    }
}

fn of_redis(section: &mut Section<'_>) -> RedisConfig {
    let default = RedisConfig::default();
    RedisConfig {
        url: address(section, "redis", default.url, redis::check_address),
        shards: section.number("shards", default.shards, 1..=redis::Options::SHARDS_MAX),
        allow_volatile: section.flag("allow_volatile", default.allow_volatile),
        wait_replicas: section.number("wait_replicas", default.wait_replicas, 0..=100),
    }
}

fn of_sql(section: &mut Section<'_>, server: SqlServer) -> SqlConfig {
    let default = SqlConfig::of(server);
    let key = server.kind();
    let check = |url: &str| {
        let server_there = sql::check_address(url)?;
        if server_there == server {
            return Ok(());
        }
        Err(format!("this is an address of {server_there}; write {key}://user@host/database"))
    };
    SqlConfig {
        server,
        url: address(section, key, default.url, check),
        shards: section.number("shards", default.shards, 1..=sql::Options::SHARDS_MAX),
        connections: section.number("connections", default.connections, 1..=CONNECTIONS_MAX),
        allow_volatile: section.flag("allow_volatile", default.allow_volatile),
    }
}

fn of_redis_and_mysql(section: &mut Section<'_>) -> RedisAndMysqlConfig {
    let default = RedisAndMysqlConfig::default();
    RedisAndMysqlConfig {
        redis: address(section, "redis", default.redis, redis::check_address),
        mysql: of_sql(section, SqlServer::Mysql),
        horizon: section.span("horizon", default.horizon, minutes(1)..=hours(24)),
        index_max: section.number("index_max", default.index_max, 10_000..=100_000_000),
    }
}

/// Where a server is: never shown with its password, however wrong it may be.
fn address(
    section: &mut Section<'_>,
    key: &'static str,
    default: Secret,
    check: impl FnOnce(&str) -> Result<(), String>,
) -> Secret {
    section.value(
        key,
        default,
        |node| {
            let text = node.text()?;
            check(text).map(|()| Secret::new(text))
        },
        |url| url.shown().into(),
    )
}

fn known(word: &str) -> Result<String, String> {
    let kinds = StoreConfig::KINDS;
    if kinds.contains(&word) {
        return Ok(word.into());
    }
    let there = format!("use {}", either(&kinds.map(|kind| format!("{kind:?}"))));
    Err(format!("there is no {word:?} store{}; {there}", did_you_mean(word, kinds)))
}

/// `a`, `a or b`, `a, b or c`.
fn either(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags, Sources};

    #[test]
    fn every_kind_that_can_be_written_opens_its_own_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("duly.toml");
        for kind in StoreConfig::KINDS {
            std::fs::write(&file, format!("store.kind = {kind:?}")).unwrap();
            let sources =
                Sources { file: Some(file.clone()), environment: Vec::new(), flags: Flags::default() };
            let config = Config::load(&sources).unwrap_or_else(|problems| panic!("{kind}: {problems}"));
            assert_eq!(config.store.config.kind(), kind);
        }
    }
}
