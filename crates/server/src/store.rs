//! Opens the store that the configuration names, and holds on to it.

use std::{sync::Arc, time::Duration};

use duly::{Clock, Now, Store};
use duly_stores::{
    EmbeddedStore, RedisStore, embedded,
    redis::{self, Held, NodeKey},
};

use crate::{
    config::{Config, RedisSetup, StoreKind},
    serve::StartError,
};

/// A store, and what keeps other nodes out of it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hold: Option<Hold>,
}

/// The right to have a Redis store open, kept alive.
pub(crate) struct Hold {
    key: Arc<NodeKey>,
    keeping: tokio::task::JoinHandle<()>,
}

impl Hold {
    /// Lets the next node in at once.
    pub(crate) async fn release(self) {
        self.keeping.abort();
        if let Err(error) = self.key.release().await {
            tracing::debug!("the next node waits a few seconds: {error}");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

pub(crate) async fn open(config: &Config, clock: &Arc<dyn Clock>) -> Result<Opened, StartError> {
    match &config.store.kind {
        StoreKind::Embedded => {
            let options = embedded::Options {
                retention: config.store.retention,
                retention_max: config.store.retention_max,
                pending_max: config.limits.pending_max,
                ..embedded::Options::default()
            };
            let store = EmbeddedStore::open(&config.data, options, clock.now()).await.map_err(|error| {
                let (folder, words) = (config.data.display().to_string(), error.to_string());
                StartError(if words.contains(&folder) { words } else { format!("data folder {folder}: {words}") })
            })?;
            Ok(Opened { store: Arc::new(store), hold: None })
        }
        StoreKind::Redis(setup) => open_redis(config, setup, clock).await,
    }
}

async fn open_redis(
    config: &Config,
    setup: &RedisSetup,
    clock: &Arc<dyn Clock>,
) -> Result<Opened, StartError> {
    let mut instance = [0; 8];
    getrandom::fill(&mut instance)
        .map_err(|error| StartError(format!("the system gave no random bytes: {error}")))?;
    let options = redis::Options {
        shards: setup.shards,
        retention: config.store.retention,
        retention_max: config.store.retention_max,
        pending_max: config.limits.pending_max,
        allow_volatile: setup.allow_volatile,
        ..redis::Options::new(u64::from_be_bytes(instance))
    };
    let url = setup.url.reveal();
    let fault = |error| StartError(format!("Redis at {}: {error}", setup.shown()));
    let key = Arc::new(NodeKey::new(url, &options, &config.node).await.map_err(fault)?);
    take(&key, clock, &setup.shown()).await?;
    let store = Arc::new(RedisStore::open(url, options, clock.now()).await.map_err(fault)?);
    let keeping = tokio::spawn(keep(key.clone(), store.clone(), clock.clone()));
    Ok(Opened { store, hold: Some(Hold { key, keeping }) })
}

/// Waits as long as a node that crashed may still seem to be there.
async fn take(key: &NodeKey, clock: &Arc<dyn Clock>, place: &str) -> Result<(), StartError> {
    let until = clock.now().mono().saturating_add(NodeKey::LIFE + Duration::from_secs(1));
    loop {
        let held = key.hold().await.map_err(|error| StartError(format!("Redis at {place}: {error}")))?;
        let Held::ByAnother(name) = held else { return Ok(()) };
        if clock.now().mono() >= until {
            return Err(StartError(format!(
                "Redis at {place}: the node {name:?} has this store open, and in this version one node at a time may; stop that \
                 one first, or use another database of this Redis (redis://host/1)"
            )));
        }
        pause(clock, Duration::from_millis(250)).await;
    }
}

/// Keeps the key alive. If another node has it, this one was away for too long and must stop.
async fn keep(key: Arc<NodeKey>, store: Arc<RedisStore>, clock: Arc<dyn Clock>) {
    loop {
        pause(&clock, NodeKey::LIFE / 5).await;
        match key.hold().await {
            Ok(Held::Mine) => {}
            Ok(Held::ByAnother(name)) => {
                tracing::error!(name, "another node has taken the store; this one stops");
                // Whatever is under way, nothing more of it is recorded from here: the other node has it now.
                let _ = store.close().await;
                return;
            }
            Err(error) => tracing::warn!("cannot tell Redis that this node is there: {error}"),
        }
    }
}

async fn pause(clock: &Arc<dyn Clock>, span: Duration) {
    let now: Now = clock.now();
    clock.sleep_until(now.mono().saturating_add(span)).await;
}
