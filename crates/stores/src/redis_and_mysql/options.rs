//! Options of the store in MySQL with an index in Redis.

use std::time::Duration;

use crate::sql;

/// Options of a [`RedisAndMysqlStore`](super::RedisAndMysqlStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Options of the MySQL store, the source of truth.
    pub sql: sql::Options,
    /// How far ahead the index in Redis looks.
    pub horizon: Duration,
    /// Max entries in the index, without those of the next seconds. With more, the index looks less far ahead.
    pub entries_max: u64,
}

impl Options {
    /// Defaults.
    pub fn new(sql: sql::Options) -> Self {
        Self { sql, horizon: Duration::from_secs(3600), entries_max: 1_000_000 }
    }
}
