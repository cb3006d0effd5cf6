//! A store that is open.

use std::sync::Arc;

use duly_core::{Clock, Store};

/// A store, the clock of all who share it, and what it can deliver by itself.
#[non_exhaustive]
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The time of the store's server; of a store in this process, the machine's.
    pub clock: Arc<dyn Clock>,
    /// The same store, if it is in Redis, and the address of that.
    #[cfg(feature = "redis")]
    pub(crate) redis: Option<(Arc<crate::RedisStore>, duly_core::Secret)>,
}

impl OpenStore {
    /// A store that delivers nothing by itself.
    pub(crate) fn new(store: impl Store, clock: Arc<dyn Clock>) -> Self {
        Self {
            store: Arc::new(store),
            clock,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }

    /// What takes messages of `sink` into Redis Streams at `streams` within the store. `None` if the store is not in that Redis, or in a
    /// Cluster.
    #[cfg(feature = "redis")]
    pub fn in_store_delivery(
        &self,
        sink: duly_core::SinkName,
        streams: &str,
        limits: crate::redis::StreamLimits,
    ) -> Option<Arc<dyn duly_core::InStoreDelivery>> {
        let (store, url) = self.redis.as_ref()?;
        crate::redis::same_server(url.reveal(), streams).then(|| store.in_store_delivery(sink, limits))?
    }
}
