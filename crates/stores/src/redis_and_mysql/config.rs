//! A store in MySQL with its index in Redis, as somebody asks for it.

use std::{sync::Arc, time::Duration};

use duly_core::{Clock, ErrorCode, Invalid, Secret, store::StoreError};

use super::{Options, RedisAndMysqlStore};
use crate::{NodeOptions, OpenStore, RedisConfig, SqlConfig, SqlServer, redis, sql};

/// MySQL, and the Redis that has the index of what is due soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisAndMysqlConfig {
    /// Where Redis is.
    pub redis: Secret,
    /// The half that is the truth.
    pub mysql: SqlConfig,
    /// How far ahead the index looks.
    pub horizon: Duration,
    /// How many entries it has at most.
    pub index_max: u64,
}

impl Default for RedisAndMysqlConfig {
    fn default() -> Self {
        Self {
            redis: RedisConfig::default().url,
            mysql: SqlConfig::of(SqlServer::Mysql),
            ..Self::new("", "")
        }
    }
}

impl RedisAndMysqlConfig {
    /// The usual settings of a store in the MySQL at `mysql`, with its index in the Redis at `redis`.
    pub fn new(redis: impl Into<String>, mysql: impl Into<String>) -> Self {
        let Options { horizon, entries_max: index_max, .. } = Options::new(sql::Options::new(0));
        let mysql = SqlConfig::new(SqlServer::Mysql, mysql);
        Self { redis: Secret::new(redis), mysql, horizon, index_max }
    }

    /// Where both are, without their passwords.
    pub fn shown(&self) -> String {
        format!("{}, with its index in Redis at {}", self.mysql.shown(), self.redis.shown())
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        redis::check_address(self.redis.reveal())
            .map_err(|detail| Invalid::new(ErrorCode::BadAddress, "store", detail))?;
        self.mysql.check()
    }

    pub(crate) async fn open(
        &self,
        node: NodeOptions,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, StoreError> {
        let options =
            Options { sql: self.mysql.options(node), horizon: self.horizon, entries_max: self.index_max };
        let (redis, mysql) = (self.redis.reveal(), self.mysql.url.reveal());
        let (store, clock) = RedisAndMysqlStore::join(redis, mysql, options, machine).await?;
        Ok(OpenStore::new(store, Arc::new(clock)))
    }
}
