//! A store in Redis, as somebody asks for it.

use std::sync::Arc;

use duly_core::{Clock, ErrorCode, Invalid, Secret, store::StoreError};

use super::{Options, RedisStore, check_address, in_store_targets::OwnStreams, inspect};
use crate::{NodeOptions, OpenStore};

/// Settings of a Redis store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Where it is: `redis://…`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`, or the same with `rediss`.
    pub url: Secret,
    /// How many parts the store has. Kept in Redis once the store is made; another number is refused.
    pub shards: u16,
    /// Whether it may be one that loses messages.
    pub allow_volatile: bool,
    /// How many replicas must have a message before it is accepted. Not with a Cluster.
    pub wait_replicas: u16,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self::new("redis://127.0.0.1:6379")
    }
}

impl RedisConfig {
    pub(crate) const BACKUP: &str =
        "the messages are in Redis: back it up by its own means (a copy of its append-only file, or BGSAVE)";

    /// The usual settings of a store in the Redis at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        let Options { shards, allow_volatile, wait_replicas, .. } = Options::new(0);
        Self { url: Secret::new(url), shards, allow_volatile, wait_replicas }
    }

    /// Where it is, without its password.
    pub fn shown(&self) -> String {
        self.url.shown()
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_address(self.url.reveal())
            .map_err(|detail| Invalid::new(ErrorCode::BadAddress, "store", detail))
    }

    pub(crate) async fn exists(&self) -> Result<bool, StoreError> {
        inspect(self.url.reveal()).await.map(|seen| seen.has_store)
    }

    pub(crate) async fn open(
        &self,
        node: NodeOptions,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, StoreError> {
        let options = Options {
            shards: self.shards,
            retention: node.retention.span,
            retention_max: node.retention.max,
            pending_max: node.limits.pending_max,
            allow_volatile: self.allow_volatile,
            wait_replicas: self.wait_replicas,
            node: node.name,
            lease: node.lease,
            ..Options::new(node.instance)
        };
        let (store, clock) = RedisStore::join(self.url.reveal(), options, machine).await?;
        let store = Arc::new(store);
        let targets = OwnStreams { store: store.clone(), url: self.url.clone() };
        Ok(OpenStore { store, clock: Arc::new(clock), in_store_delivery: Some(Arc::new(targets)) })
    }
}
