//! Which store, with its settings, and how each is opened: the one list of all stores.

use std::{fmt, pin::Pin, sync::Arc};

use duly_core::{Clock, Invalid, store::StoreError};

#[cfg(feature = "embedded")]
use crate::EmbeddedConfig;
#[cfg(feature = "redis_and_mysql")]
use crate::RedisAndMysqlConfig;
#[cfg(feature = "redis")]
use crate::RedisConfig;
#[cfg(feature = "sql")]
use crate::SqlConfig;
use crate::{
    NodeOptions, OpenStore, Retention,
    memory::{self, MemoryStore},
};

/// A store that is being opened. Boxed, because the types of nested futures would exceed the compiler's recursion limit.
pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = Result<OpenStore, StoreError>> + Send + 'a>>;

/// Every kind of store of this build, with its settings. Another crate that switches on a feature adds a variant, so a `match` outside
/// of this crate ends with `_`; those in here have none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreConfig {
    /// This process's memory: lost with it, for tests.
    Memory,
    /// Files of Duly's own in a folder.
    #[cfg(feature = "embedded")]
    Embedded(EmbeddedConfig),
    /// A Redis.
    #[cfg(feature = "redis")]
    Redis(RedisConfig),
    /// MySQL, MariaDB or PostgreSQL.
    #[cfg(feature = "sql")]
    Sql(SqlConfig),
    /// MySQL, with an index in Redis.
    #[cfg(feature = "redis_and_mysql")]
    RedisAndMysql(RedisAndMysqlConfig),
}

impl StoreConfig {
    /// The kinds that a configuration file can name, in the order in which they are shown.
    pub const KINDS: [&str; 5] = ["embedded", "redis", "mysql", "postgres", "redis+mysql"];

    /// The word that the configuration uses.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => "embedded",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
            #[cfg(feature = "sql")]
            Self::Sql(config) => config.server.kind(),
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(_) => "redis+mysql",
        }
    }

    /// The kind whose addresses begin with `scheme`, if one kind alone is named by an address.
    pub fn kind_of_scheme(scheme: &str) -> Option<&'static str> {
        match scheme {
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel"
            | "rediss-sentinel" => Some("redis"),
            "mysql" | "mariadb" => Some("mysql"),
            "postgres" | "postgresql" => Some("postgres"),
            _ => None,
        }
    }

    /// Whether the addresses are ones that the store understands. The answer holds none of them, as they may hold passwords.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Memory => Ok(()),
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => Ok(()),
            #[cfg(feature = "redis")]
            Self::Redis(config) => config.check(),
            #[cfg(feature = "sql")]
            Self::Sql(config) => config.check(),
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => config.check(),
        }
    }

    /// The same with a server that may lose messages allowed or refused; of no effect on a store without one.
    #[must_use]
    #[cfg_attr(
        not(any(feature = "redis", feature = "sql")),
        expect(unused_variables, reason = "of no effect on a store without a server")
    )]
    pub fn allow_volatile(mut self, allow: bool) -> Self {
        match &mut self {
            Self::Memory => {}
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => {}
            #[cfg(feature = "redis")]
            Self::Redis(config) => config.allow_volatile = allow,
            #[cfg(feature = "sql")]
            Self::Sql(config) => config.allow_volatile = allow,
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => config.mysql.allow_volatile = allow,
        }
        self
    }

    /// What is kept of ended messages unless somebody says otherwise.
    pub fn retention(&self) -> Retention {
        match self {
            Self::Memory => Retention::LONG,
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => Retention::LONG,
            #[cfg(feature = "redis")]
            Self::Redis(_) => Retention::SHORT,
            #[cfg(feature = "sql")]
            Self::Sql(_) => Retention::LONG,
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(_) => Retention::LONG,
        }
    }

    /// How the messages are backed up by the means of the store's server; `None` if Duly does it itself.
    pub fn own_backup(&self) -> Option<&'static str> {
        match self {
            Self::Memory => None,
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => None,
            #[cfg(feature = "redis")]
            Self::Redis(_) => Some(RedisConfig::BACKUP),
            #[cfg(feature = "sql")]
            Self::Sql(config) => Some(config.server.backup()),
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => Some(config.mysql.server.backup()),
        }
    }

    /// Whether a store was ever made there. Changes nothing.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        match self {
            Self::Memory => Ok(false),
            #[cfg(feature = "embedded")]
            Self::Embedded(config) => Ok(config.exists()),
            #[cfg(feature = "redis")]
            Self::Redis(config) => config.exists().await,
            #[cfg(feature = "sql")]
            Self::Sql(config) => config.exists().await,
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => config.mysql.exists().await,
        }
    }

    /// Opens the store, makes it if there is none, and becomes a node of it. `machine` is this machine's clock.
    pub fn open(&self, node: NodeOptions, machine: Arc<dyn Clock>) -> OpenFuture<'_> {
        match self {
            Self::Memory => Box::pin(async move {
                let Retention { span: retention, max: retention_max } = node.retention;
                let pending_max = node.limits.pending_max;
                let options = memory::Options { retention, retention_max, pending_max };
                Ok(OpenStore::new(MemoryStore::with(options), machine))
            }),
            #[cfg(feature = "embedded")]
            Self::Embedded(config) => Box::pin(config.open(node, machine)),
            #[cfg(feature = "redis")]
            Self::Redis(config) => Box::pin(config.open(node, machine)),
            #[cfg(feature = "sql")]
            Self::Sql(config) => Box::pin(config.open(node, machine)),
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => Box::pin(config.open(node, machine)),
        }
    }
}

/// Where the messages are, without passwords.
impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            #[cfg(feature = "embedded")]
            Self::Embedded(config) => write!(f, "{}", config.folder.display()),
            #[cfg(feature = "redis")]
            Self::Redis(config) => write!(f, "Redis at {}", config.url.shown()),
            #[cfg(feature = "sql")]
            Self::Sql(config) => write!(f, "{} at {}", config.server, config.url.shown()),
            #[cfg(feature = "redis_and_mysql")]
            Self::RedisAndMysql(config) => write!(f, "MySQL at {}", config.shown()),
        }
    }
}
