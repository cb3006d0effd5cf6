//! Opening a store.

use std::{
    hash::{BuildHasher, RandomState},
    path::Path,
    pin::Pin,
    sync::Arc,
};

use duly_core::{Clock, ErrorCode, Invalid, Limits, Store, store::StoreError};
use duly_stores::{
    EmbeddedStore, RedisStore, ServerClock, SqlStore, TieredStore, embedded, redis, sql, tiered,
};

use crate::{Builder, Error};

/// Boxed: what a client of a server is made of goes too deep for the compiler inside the futures of whoever starts this.
type Joining<'a, S> = Pin<Box<dyn Future<Output = Result<(S, ServerClock), StoreError>> + Send + 'a>>;

/// The store that lives in a folder of this machine.
pub(crate) async fn embedded(
    folder: &Path,
    limits: &Limits,
    clock: &dyn Clock,
) -> Result<Arc<dyn Store>, Error> {
    let options = embedded::Options { pending_max: limits.pending_max, ..embedded::Options::default() };
    Ok(Arc::new(EmbeddedStore::open(folder, options, clock.now()).await?))
}

/// The store in a Redis, and the clock of all its nodes.
pub(crate) async fn redis(
    url: &str,
    node: String,
    builder: &Builder,
    machine: Arc<dyn Clock>,
) -> Result<(Arc<dyn Store>, Arc<dyn Clock>), Error> {
    let (pending_max, lease) = (builder.limits.pending_max, builder.lease);
    let allow_volatile = builder.allow_volatile;
    let options =
        redis::Options { node, pending_max, lease, allow_volatile, ..redis::Options::new(instance()) };
    let joining: Joining<'_, RedisStore> = Box::pin(RedisStore::join(url, options, machine));
    let (store, clock) = joining.await?;
    Ok((Arc::new(store), Arc::new(clock)))
}

/// The store in a database, and the clock of all its nodes.
pub(crate) async fn sql(
    server: sql::Server,
    url: &str,
    node: String,
    builder: &Builder,
    machine: Arc<dyn Clock>,
) -> Result<(Arc<dyn Store>, Arc<dyn Clock>), Error> {
    let joining: Joining<'_, SqlStore> =
        Box::pin(SqlStore::join(url, sql_options(server, url, node, builder)?, machine));
    let (store, clock) = joining.await?;
    Ok((Arc::new(store), Arc::new(clock)))
}

/// The store in MySQL with its index in Redis.
pub(crate) async fn pair(
    redis: &str,
    mysql: &str,
    node: String,
    builder: &Builder,
    machine: Arc<dyn Clock>,
) -> Result<(Arc<dyn Store>, Arc<dyn Clock>), Error> {
    let options = tiered::Options::new(sql_options(sql::Server::Mysql, mysql, node, builder)?);
    let joining: Joining<'_, TieredStore> = Box::pin(TieredStore::join(redis, mysql, options, machine));
    let (store, clock) = joining.await?;
    Ok((Arc::new(store), Arc::new(clock)))
}

fn sql_options(
    server: sql::Server,
    url: &str,
    node: String,
    builder: &Builder,
) -> Result<sql::Options, Invalid> {
    let refused = |detail: String| Invalid::new(ErrorCode::BadAddress, "store", detail);
    let named = sql::check_address(url).map_err(refused)?;
    if named != server {
        return Err(refused(format!("this is an address of {named}, and {server} was asked for")));
    }
    let (limits, lease, allow_volatile) = (builder.limits.clone(), builder.lease, builder.allow_volatile);
    Ok(sql::Options { node, limits, lease, allow_volatile, ..sql::Options::new(instance()) })
}

/// Who this process is. The hasher's keys come from the system: randomness without another dependency.
fn instance() -> u64 {
    RandomState::new().hash_one(0)
}
