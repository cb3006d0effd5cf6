//! The way to Redis: one connection that many calls share and that comes back by itself.

use duly_core::store::{StoreError, StoreErrorKind};
use redis_link::{Address, Reach};

use super::fault::connect_failed;

pub(super) use redis_link::Link;

/// Connects to `redis://…`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`, or the same with `rediss` for TLS.
pub(super) async fn connect(url: &str) -> Result<Link, StoreError> {
    let address = Address::parse(url).map_err(|what| {
        StoreError::new(StoreErrorKind::Unavailable, format!("this is not an address of Redis: {what}"))
    })?;
    Link::connect(&address, &Reach::QUICK).await.map_err(|error| connect_failed(&error))
}

/// Whether this is an address that [`RedisStore::open`](super::RedisStore::open) understands; if not, why. The answer does not
/// hold the address, which may hold a password.
pub fn check_address(url: &str) -> Result<(), String> {
    Address::parse(url).map(|_| ())
}

/// Whether one script can reach the keys at both addresses: see [`Address::is_one_with`].
pub fn same_server(one: &str, other: &str) -> bool {
    match (Address::parse(one), Address::parse(other)) {
        (Ok(one), Ok(other)) => one.is_one_with(&other),
        _ => false,
    }
}
