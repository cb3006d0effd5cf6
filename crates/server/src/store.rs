//! Opens the configured store and its clock.

use std::{error::Error, sync::Arc};

use duly::{Clock, InStoreDelivery, SinkName};
use duly_core::store::StoreError;
#[cfg(feature = "redis_streams")]
use duly_sinks::SinkConfig;
#[cfg(feature = "redis_streams")]
use duly_stores::InStoreTarget;
use duly_stores::{NodeOptions, OpenStore, Retention};

use crate::{config::Config, serve::StartError};

/// Why a store could not be opened or queried.
#[derive(Debug)]
pub struct OpenError {
    /// The failure, and what to do.
    pub words: String,
    /// The server of the store is unreachable or does not answer: a retry may succeed.
    pub is_away: bool,
}

impl OpenError {
    fn here(words: String) -> Self {
        Self { words, is_away: false }
    }

    /// The answer of another process, or that it gave none.
    fn of(error: &StoreError, words: String) -> Self {
        // Settings that do not fit are found by Duly itself: no error of a client is behind them. Who is not let in stays outside.
        let is_let_in = !["user or password", "does not let this user", "no such database"]
            .iter()
            .any(|refusal| error.what.contains(refusal));
        Self { words, is_away: error.kind.is_transient() && error.source().is_some() && is_let_in }
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        Self(error.words)
    }
}

/// Without sinks into streams there is nothing that the store could deliver there.
#[cfg(not(feature = "redis_streams"))]
pub(crate) fn in_store_delivery(_: &OpenStore, _: &Config, _: &SinkName) -> Option<Arc<dyn InStoreDelivery>> {
    None
}

/// In-store delivery of the sink `name`, if store and target are the same Redis.
#[cfg(feature = "redis_streams")]
pub(crate) fn in_store_delivery(
    opened: &OpenStore,
    config: &Config,
    name: &SinkName,
) -> Option<Arc<dyn InStoreDelivery>> {
    let setup = config.sinks.get(name)?;
    let SinkConfig::RedisStreams(streams) = &setup.config else { return None };
    let limits = duly_stores::redis::StreamLimits {
        max_len: streams.max_len,
        max_age: streams.max_age.map(|span| span.0),
        topics: setup.options.topics.clone(),
    };
    let target = InStoreTarget::RedisStreams { url: streams.url.clone()?, limits };
    opened.in_store_delivery.as_ref()?.delivery(name.clone(), &target)
}

/// Whether a store exists there. Changes nothing.
pub async fn is_there(config: &Config) -> Result<bool, OpenError> {
    let store = &config.store.config;
    store.exists().await.map_err(|error| OpenError::of(&error, format!("{store}: {error}")))
}

/// Opens the store, creates it if there is none, and joins it as a node by the configured name.
pub async fn open(config: &Config, machine: Arc<dyn Clock>) -> Result<OpenStore, OpenError> {
    let setup = &config.store;
    let node = NodeOptions {
        name: config.node.clone(),
        instance: instance()?,
        lease: setup.lease,
        retention: Retention { span: setup.retention, max: setup.retention_max },
        limits: config.limits.clone(),
    };
    setup.config.open(node, machine).await.map_err(|error| {
        let (place, words) = (setup.config.to_string(), error.to_string());
        match config.data() {
            // The errors of files name their paths.
            Some(_) if words.contains(&place) => OpenError::here(words),
            Some(_) => OpenError::here(format!("data folder {place}: {words}")),
            None => OpenError::of(&error, format!("{place}: {words}")),
        }
    })
}

/// Identifies this process among the nodes of a store; new at every start.
fn instance() -> Result<u64, OpenError> {
    let mut instance = [0; 8];
    getrandom::fill(&mut instance)
        .map_err(|error| OpenError::here(format!("the system gave no random bytes: {error}")))?;
    Ok(u64::from_be_bytes(instance))
}
