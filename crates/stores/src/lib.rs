//! Where messages wait: implementations of the [`Store`](duly_core::Store) port.

pub mod embedded;
pub mod memory;
pub mod redis;
mod shared;
pub mod sql;
pub mod tiered;

pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;
pub use redis::RedisStore;
pub use shared::ServerClock;
pub use sql::SqlStore;
pub use tiered::TieredStore;
