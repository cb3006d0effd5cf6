//! Opening a store.

use std::{
    hash::{BuildHasher, RandomState},
    path::Path,
    pin::Pin,
    sync::Arc,
};

use duly_core::{Clock, Invalid, Limits, Store, store::StoreError};
use duly_stores::{EmbeddedStore, RedisStore, ServerClock, SqlStore, embedded, redis, sql};

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
    let options = redis::Options { node, pending_max, lease, ..redis::Options::new(instance()) };
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
    let refused = |detail: String| Invalid::new("bad_address", "store", detail);
    let named = sql::check_address(url).map_err(refused)?;
    if named != server {
        return Err(refused(format!("this is an address of {named}, and {server} was asked for")).into());
    }
    let (pending_max, lease) = (builder.limits.pending_max, builder.lease);
    let options = sql::Options { node, pending_max, lease, ..sql::Options::new(instance()) };
    let joining: Joining<'_, SqlStore> = Box::pin(SqlStore::join(url, options, machine));
    let (store, clock) = joining.await?;
    Ok((Arc::new(store), Arc::new(clock)))
}

/// Who this process is. The hasher's keys come from the system: randomness without another dependency.
fn instance() -> u64 {
    RandomState::new().hash_one(0)
}
