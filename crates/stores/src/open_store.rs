//! A store that is open.

use std::sync::Arc;

use duly_core::{Clock, InStoreDelivery, SinkName, Store};

/// A store, the clock of all who share it, and what it can deliver by itself.
#[non_exhaustive]
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The time of the store's server; of a store in this process, the machine's.
    pub clock: Arc<dyn Clock>,
    /// The targets that the store delivers to by itself. `None` if there are none.
    pub in_store_delivery: Option<Arc<dyn InStoreTargets>>,
}

impl OpenStore {
    /// A store that delivers nothing by itself.
    pub(crate) fn new(store: impl Store, clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(store), clock, in_store_delivery: None }
    }
}

/// The targets that a store delivers to by itself, because its server is their server.
pub trait InStoreTargets: Send + Sync + 'static {
    /// Delivers messages of `sink` to `target` within the store. `None` if the store does not reach the target.
    fn delivery(&self, sink: SinkName, target: &InStoreTarget) -> Option<Arc<dyn InStoreDelivery>>;
}

/// A target that may be on the server of a store. Another crate that switches on a feature adds a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InStoreTarget {
    /// Redis Streams.
    #[cfg(feature = "redis")]
    RedisStreams {
        /// The address of their Redis.
        url: duly_core::Secret,
        /// Which streams there may be, and how long they may become.
        limits: crate::redis::StreamLimits,
    },
}
