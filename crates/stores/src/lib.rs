//! Where messages wait: a folder per store, each behind the [`Store`](duly_core::Store) port.
//!
//! A kind of store is a feature, a variant of [`StoreConfig`], and a folder with `mod.rs`, `config.rs` and `docs.md`. Whoever needs a store
//! builds a [`StoreConfig`] and [opens](StoreConfig::open) it.

mod config;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod memory;
mod node_options;
mod open_store;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis_and_mysql")]
pub mod redis_and_mysql;
#[cfg(any(feature = "redis", feature = "sql"))]
#[cfg_attr(
    not(all(feature = "redis", feature = "sql")),
    expect(dead_code, reason = "no store uses all that they share")
)]
mod shared;
#[cfg(feature = "sql")]
#[cfg_attr(
    not(feature = "redis_and_mysql"),
    expect(dead_code, unused_imports, reason = "redis_and_mysql asks more of it than the port")
)]
pub mod sql;

pub use config::{OpenFuture, StoreConfig};
pub use memory::MemoryStore;
pub use node_options::{NodeOptions, Retention};
pub use open_store::{InStoreTarget, InStoreTargets, OpenStore};

#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedConfig, EmbeddedStore};
#[cfg(feature = "redis")]
pub use redis::{RedisConfig, RedisStore};
#[cfg(feature = "redis_and_mysql")]
pub use redis_and_mysql::{RedisAndMysqlConfig, RedisAndMysqlStore};
#[cfg(any(feature = "redis", feature = "sql"))]
pub use shared::ServerClock;
#[cfg(feature = "sql")]
pub use sql::{Server as SqlServer, SqlConfig, SqlStore};
