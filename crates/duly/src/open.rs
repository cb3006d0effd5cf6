//! Opening a store.

use std::{
    hash::{BuildHasher, RandomState},
    path::Path,
    pin::Pin,
    sync::Arc,
};

use duly_core::{Clock, Limits, Store, store::StoreError};
use duly_stores::{EmbeddedStore, RedisStore, ServerClock, embedded, redis};

use crate::{Builder, Error};

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
    // The hasher's keys come from the system: randomness without another dependency.
    let instance = RandomState::new().hash_one(0);
    let (pending_max, lease) = (builder.limits.pending_max, builder.lease);
    let options = redis::Options { node, pending_max, lease, ..redis::Options::new(instance) };
    // Boxed: what a client of Redis is made of goes too deep for the compiler inside the futures of whoever starts this.
    type Joining<'a> =
        Pin<Box<dyn Future<Output = Result<(RedisStore, ServerClock), StoreError>> + Send + 'a>>;
    let joining: Joining<'_> = Box::pin(RedisStore::join(url, options, machine));
    let (store, clock) = joining.await?;
    Ok((Arc::new(store), Arc::new(clock)))
}
