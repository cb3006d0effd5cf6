//! Stores under test, and how each is restarted: a [`Lab`] is the factory of one kind of store, a [`StoreFixture`] one store with its data
//! and its server, [`Keep`] what it retains, and a [`StoreHarness`] a store with the clock of a case.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use duly_core::{Limits, Now, Store};
use duly_stores::{
    EmbeddedStore, MemoryStore, RedisAndMysqlStore, RedisStore, SqlStore, embedded, memory, redis,
    redis_and_mysql, sql,
};

use super::{
    cluster::Cluster,
    harness::{BEGIN, Keep, StoreHarness},
};
use crate::servers;

/// One store's data, and the store opened on it.
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;

    /// Closes the store cleanly and opens it again.
    async fn reopen(&mut self, now: Now);

    /// The process dies without a word; another one opens the store.
    async fn crash(&mut self, now: Now);
}

/// Wraps every store that a lab opens, e.g. to plant a bug.
pub type Wrap = Arc<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// A fixture being made.
pub type FixtureFuture = Pin<Box<dyn Future<Output = Box<dyn StoreFixture>> + Send>>;

/// Makes fresh stores of one kind for the cases of the suites.
pub struct Lab {
    make: Box<dyn Fn(Keep, Now) -> FixtureFuture + Send + Sync>,
    /// Data for several nodes, if a server has it.
    shared: Option<Box<dyn Fn() -> Box<dyn ServerStore> + Send + Sync>>,
    wrap: Wrap,
    installed: fn() -> bool,
}

impl Lab {
    /// A lab whose stores `make` makes: each call a fresh and empty one.
    pub fn new(make: impl Fn(Keep, Now) -> FixtureFuture + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), shared: None, wrap: Arc::new(|store| store), installed: || true }
    }

    /// A lab of stores on a server that may not be installed; `installed` says so out loud.
    fn on_a_server<S: ServerStore>(
        installed: fn() -> bool,
        make: impl Fn(Keep) -> S + Send + Sync + 'static,
    ) -> Self {
        let make = Arc::new(make);
        let shared = make.clone();
        let shared = move || Box::new(shared(Keep::default())) as Box<dyn ServerStore>;
        let alone = Self::new(move |keep, now| on_server(make(keep), now));
        Self { shared: Some(Box::new(shared)), installed, ..alone }
    }

    /// The same lab with every store wrapped.
    pub fn wrapped(self, wrap: Wrap) -> Self {
        Self { wrap, ..self }
    }

    /// Whether its cases can run.
    pub fn is_installed(&self) -> bool {
        (self.installed)()
    }

    /// A fresh store in a harness.
    pub async fn harness(&self) -> StoreHarness {
        self.harness_with(Keep::default()).await
    }

    /// A fresh store that keeps so much.
    pub async fn harness_with(&self, keep: Keep) -> StoreHarness {
        StoreHarness::new((self.make)(keep, BEGIN).await, self.wrap.clone())
    }

    /// A fresh store that several nodes can open.
    pub fn cluster(&self) -> Cluster {
        let shared = self.shared.as_ref().expect("a store on a server: no other is opened by several nodes");
        Cluster::new(shared(), self.wrap.clone())
    }
}

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

/// A store that is opened on a server.
#[async_trait]
pub(super) trait ServerStore: Send + Sync + 'static {
    /// Opens it as the process `instance` of the node `node`.
    async fn open(&self, node: &str, instance: u64, now: Now) -> Arc<dyn Store>;
}

/// The node of a store that has one.
const NODE: &str = "node";

/// The data of a store on a server. Each opening is that of another process.
struct ServerFixture<S> {
    at: S,
    store: Arc<dyn Store>,
}

/// A fresh store on a server.
fn on_server(at: impl ServerStore, now: Now) -> FixtureFuture {
    Box::pin(async move {
        let store = at.open(NODE, fresh_number(), now).await;
        Box::new(ServerFixture { at, store }) as Box<dyn StoreFixture>
    })
}

#[async_trait]
impl<S: ServerStore> StoreFixture for ServerFixture<S> {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn reopen(&mut self, now: Now) {
        self.store.close().await.unwrap();
        self.crash(now).await;
    }

    async fn crash(&mut self, now: Now) {
        self.store = self.at.open(NODE, fresh_number(), now).await;
    }
}

/// A number that no other store of this process has.
pub(super) fn fresh_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
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
