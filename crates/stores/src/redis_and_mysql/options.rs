//! How the store in MySQL with its index in Redis is opened.

use std::time::Duration;

use crate::sql;

/// What a [`RedisAndMysqlStore`](super::RedisAndMysqlStore) keeps, and how much of it Redis has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The half that is the truth.
    pub sql: sql::Options,
    /// How far ahead the index in Redis looks.
    pub horizon: Duration,
    /// How many entries the index has at most, those of the next seconds aside. With more, it looks less far ahead.
    pub entries_max: u64,
}

impl Options {
    /// What fits most.
    pub fn new(sql: sql::Options) -> Self {
        Self { sql, horizon: Duration::from_secs(3600), entries_max: 1_000_000 }
    }
}
