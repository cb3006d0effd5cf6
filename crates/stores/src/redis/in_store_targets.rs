//! Which targets a store in Redis delivers to by itself.

use std::sync::Arc;

use duly_core::{InStoreDelivery, Secret, SinkName};

use super::{RedisStore, same_server};
use crate::{InStoreTarget, InStoreTargets};

/// Redis Streams in the Redis at `url`, where the store is.
pub(super) struct OwnStreams {
    pub(super) store: Arc<RedisStore>,
    pub(super) url: Secret,
}

impl InStoreTargets for OwnStreams {
    fn delivery(&self, sink: SinkName, target: &InStoreTarget) -> Option<Arc<dyn InStoreDelivery>> {
        match target {
            InStoreTarget::RedisStreams { url, limits } => same_server(self.url.reveal(), url.reveal())
                .then(|| self.store.in_store_delivery(sink, limits.clone()))?,
        }
    }
}
