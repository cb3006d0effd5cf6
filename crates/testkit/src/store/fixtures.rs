//! The stores of Duly under test: a [`Lab`] of each.

use std::sync::Arc;

use async_trait::async_trait;
use duly_conformance::store::{Keep, Lab, ServerStore, StoreFixture, fresh_number};
use duly_core::{Limits, Now, Store};
use duly_stores::{
    EmbeddedStore, MemoryStore, RedisAndMysqlStore, RedisStore, SqlStore, embedded, memory, redis,
    redis_and_mysql, sql,
};

use crate::servers;

struct MemoryFixture(MemoryStore);

#[async_trait]
impl StoreFixture for MemoryFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn reopen(&mut self, now: Now) {
        self.0.close().await.unwrap();
        self.0.restart(now);
    }

    async fn crash(&mut self, now: Now) {
        self.0.restart(now);
    }
}

/// The lab of [`MemoryStore`].
pub fn memory() -> Lab {
    Lab::new(|keep, _| {
        let Keep { retention, retention_max, pending_max } = keep;
        let store = MemoryStore::with(memory::Options { retention, retention_max, pending_max });
        Box::pin(async { Box::new(MemoryFixture(store)) as Box<dyn StoreFixture> })
    })
}

struct EmbeddedFixture {
    folder: tempfile::TempDir,
    options: embedded::Options,
    store: Arc<EmbeddedStore>,
}

impl EmbeddedFixture {
    async fn open(&mut self, now: Now) {
        self.store =
            Arc::new(EmbeddedStore::open(self.folder.path(), self.options.clone(), now).await.unwrap());
    }
}

#[async_trait]
impl StoreFixture for EmbeddedFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn reopen(&mut self, now: Now) {
        self.store.close().await.unwrap();
        self.open(now).await;
    }

    async fn crash(&mut self, now: Now) {
        self.store.abandon();
        self.open(now).await;
    }
}

/// The lab of [`EmbeddedStore`], with files so small that everything is moved all the time.
pub fn embedded() -> Lab {
    Lab::new(|keep, now| {
        let Keep { retention, retention_max, pending_max } = keep;
        let options =
            embedded::Options { retention, retention_max, pending_max, ..embedded::Options::small() };
        Box::pin(async move {
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(EmbeddedStore::open(folder.path(), options.clone(), now).await.unwrap());
            Box::new(EmbeddedFixture { folder, options, store }) as Box<dyn StoreFixture>
        })
    })
}

struct OnRedis {
    url: String,
    options: redis::Options,
}

#[async_trait]
impl ServerStore for OnRedis {
    async fn open(&self, node: &str, instance: u64, now: Now) -> Arc<dyn Store> {
        let options = redis::Options { node: node.into(), instance, ..self.options.clone() };
        Arc::new(RedisStore::open(&self.url, options, now).await.unwrap())
    }
}

/// The lab of [`RedisStore`] on one server: every store has a name of its own there.
pub fn redis() -> Lab {
    redis_at(|| servers::redis::shared().url())
}

/// The lab of [`RedisStore`] on the Redis whose address `url` tells, a cluster or sentinels included.
pub fn redis_at(url: impl Fn() -> String + Send + Sync + 'static) -> Lab {
    Lab::on_a_server(servers::redis::installed, move |keep| {
        let Keep { retention, retention_max, pending_max } = keep;
        let options = redis::Options {
            prefix: format!("lab-{}", fresh_number()),
            retention,
            retention_max,
            pending_max,
            ..redis::Options::new(0)
        };
        OnRedis { url: url(), options }
    })
}

struct OnSql {
    url: String,
    options: sql::Options,
}

#[async_trait]
impl ServerStore for OnSql {
    async fn open(&self, node: &str, instance: u64, now: Now) -> Arc<dyn Store> {
        let options = sql::Options { node: node.into(), instance, ..self.options.clone() };
        Arc::new(SqlStore::open(&self.url, options, now).await.unwrap())
    }
}

/// The lab of [`SqlStore`] in MariaDB: every store has a database of its own there.
pub fn mysql() -> Lab {
    sql_at(servers::mysql::installed, || servers::mysql::shared().fresh_database())
}

/// The lab of [`SqlStore`] in PostgreSQL: every store has a database of its own there.
pub fn postgres() -> Lab {
    sql_at(servers::postgres::installed, || servers::postgres::shared().fresh_database())
}

fn sql_at(installed: fn() -> bool, url: impl Fn() -> String + Send + Sync + 'static) -> Lab {
    Lab::on_a_server(installed, move |keep| OnSql { url: url(), options: sql_options(keep) })
}

fn sql_options(Keep { retention, retention_max, pending_max }: Keep) -> sql::Options {
    let limits = Limits { pending_max, ..Limits::default() };
    sql::Options { retention, retention_max, limits, connections: 4, ..sql::Options::new(0) }
}

struct OnRedisAndMysql {
    redis: String,
    mysql: String,
    options: redis_and_mysql::Options,
}

#[async_trait]
impl ServerStore for OnRedisAndMysql {
    async fn open(&self, node: &str, instance: u64, now: Now) -> Arc<dyn Store> {
        let mut options = self.options.clone();
        (options.sql.node, options.sql.instance) = (node.into(), instance);
        Arc::new(RedisAndMysqlStore::open(&self.redis, &self.mysql, options, now).await.unwrap())
    }
}

/// The lab of [`RedisAndMysqlStore`]: the truth in MariaDB, the index in Redis.
pub fn redis_and_mysql() -> Lab {
    let installed = || servers::redis::installed() && servers::mysql::installed();
    Lab::on_a_server(installed, |keep| {
        let options = redis_and_mysql::Options::new(sql_options(keep));
        let (redis, mysql) = (servers::redis::shared().url(), servers::mysql::shared().fresh_database());
        OnRedisAndMysql { redis, mysql, options }
    })
}
