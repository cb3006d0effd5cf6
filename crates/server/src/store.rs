//! Opens the store that the configuration names, and says by which clock it goes.

use std::sync::Arc;

use duly::{Clock, InStoreDelivery, SinkName, Store};
#[cfg(feature = "redis_streams")]
use duly_sinks::SinkConfig;
use duly_stores::{EmbeddedStore, RedisStore, SqlStore, TieredStore, embedded, redis, sql, tiered};

use crate::{
    config::{Config, PairSetup, RedisSetup, SqlSetup, StoreKind},
    serve::StartError,
};

/// A store, and the clock that all who use it go by.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The same store, if it is in Redis.
    #[cfg_attr(
        not(feature = "redis_streams"),
        expect(dead_code, reason = "it is asked for what fills streams")
    )]
    pub(crate) redis: Option<Arc<RedisStore>>,
}

impl Opened {
    /// Without sinks into streams there is nothing that the store could move there.
    #[cfg(not(feature = "redis_streams"))]
    pub(crate) fn in_store_delivery(&self, _: &Config, _: &SinkName) -> Option<Arc<dyn InStoreDelivery>> {
        None
    }

    /// What takes messages of the sink `name` to their target within the store, if both are in one Redis.
    #[cfg(feature = "redis_streams")]
    pub(crate) fn in_store_delivery(
        &self,
        config: &Config,
        name: &SinkName,
    ) -> Option<Arc<dyn InStoreDelivery>> {
        let (StoreKind::Redis(setup), Some(store)) = (&config.store.kind, &self.redis) else { return None };
        let SinkConfig::RedisStreams(streams) = &config.sinks.get(name)?.config else { return None };
        if !redis::same_place(setup.url.reveal(), streams.url.as_ref()?.reveal()) {
            return None;
        }
        let max_age = streams.max_age.map(|span| span.0);
        let topics = config.sinks.get(name)?.options.topics.clone();
        store.in_store_delivery(
            name.clone(),
            redis::StreamLimits { max_len: streams.max_len, max_age, topics },
        )
    }
}

/// Where the messages are, fit to be shown.
pub(crate) fn shown(config: &Config) -> String {
    match &config.store.kind {
        StoreKind::Embedded => config.data.display().to_string(),
        StoreKind::Redis(setup) => format!("Redis at {}", setup.shown()),
        StoreKind::Sql(setup) => format!("{} at {}", setup.server, setup.shown()),
        StoreKind::Pair(setup) => format!("MySQL at {}", setup.shown()),
    }
}

/// Whether a store was ever made there. Changes nothing.
pub(crate) async fn is_there(config: &Config) -> Result<bool, StartError> {
    let there = match &config.store.kind {
        StoreKind::Embedded => Ok(EmbeddedStore::is_in(&config.data)),
        StoreKind::Redis(setup) => redis::inspect(setup.url.reveal()).await.map(|seen| seen.has_store),
        StoreKind::Sql(setup) => SqlStore::is_at(setup.url.reveal()).await,
        StoreKind::Pair(setup) => SqlStore::is_at(setup.mysql.url.reveal()).await,
    };
    there.map_err(|error| StartError(format!("{}: {error}", shown(config))))
}

/// Opens the store, makes it if there is none, and becomes a node of it by the name that is configured.
pub(crate) async fn open(config: &Config, machine: Arc<dyn Clock>) -> Result<Opened, StartError> {
    match &config.store.kind {
        StoreKind::Embedded => open_embedded(config, machine).await,
        StoreKind::Redis(setup) => open_redis(config, setup, machine).await,
        StoreKind::Sql(setup) => open_sql(config, setup, machine).await,
        StoreKind::Pair(setup) => open_pair(config, setup, machine).await,
    }
}

async fn open_embedded(config: &Config, clock: Arc<dyn Clock>) -> Result<Opened, StartError> {
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
    Ok(Opened { store: Arc::new(store), clock, redis: None })
}

async fn open_redis(
    config: &Config,
    setup: &RedisSetup,
    machine: Arc<dyn Clock>,
) -> Result<Opened, StartError> {
    let options = redis::Options {
        shards: setup.shards,
        retention: config.store.retention,
        retention_max: config.store.retention_max,
        pending_max: config.limits.pending_max,
        allow_volatile: setup.allow_volatile,
        wait_replicas: setup.wait_replicas,
        node: config.node.clone(),
        lease: config.store.lease,
        ..redis::Options::new(instance()?)
    };
    let (store, clock) = RedisStore::join(setup.url.reveal(), options, machine)
        .await
        .map_err(|error| StartError(format!("Redis at {}: {error}", setup.shown())))?;
    let store = Arc::new(store);
    Ok(Opened { store: store.clone(), clock: Arc::new(clock), redis: Some(store) })
}

async fn open_sql(config: &Config, setup: &SqlSetup, machine: Arc<dyn Clock>) -> Result<Opened, StartError> {
    let (store, clock) = SqlStore::join(setup.url.reveal(), sql_options(config, setup)?, machine)
        .await
        .map_err(|error| StartError(format!("{} at {}: {error}", setup.server, setup.shown())))?;
    Ok(Opened { store: Arc::new(store), clock: Arc::new(clock), redis: None })
}

async fn open_pair(
    config: &Config,
    setup: &PairSetup,
    machine: Arc<dyn Clock>,
) -> Result<Opened, StartError> {
    let options = tiered::Options {
        sql: sql_options(config, &setup.mysql)?,
        horizon: setup.horizon,
        entries_max: setup.index_max,
    };
    let (store, clock) = TieredStore::join(setup.redis.reveal(), setup.mysql.url.reveal(), options, machine)
        .await
        .map_err(|error| StartError(format!("MySQL at {}: {error}", setup.shown())))?;
    Ok(Opened { store: Arc::new(store), clock: Arc::new(clock), redis: None })
}

fn sql_options(config: &Config, setup: &SqlSetup) -> Result<sql::Options, StartError> {
    Ok(sql::Options {
        shards: setup.shards,
        retention: config.store.retention,
        retention_max: config.store.retention_max,
        limits: config.limits.clone(),
        connections: setup.connections,
        allow_volatile: setup.allow_volatile,
        node: config.node.clone(),
        lease: config.store.lease,
        ..sql::Options::new(instance()?)
    })
}

/// Who this process is among those that share a store: another at every start.
fn instance() -> Result<u64, StartError> {
    let mut instance = [0; 8];
    getrandom::fill(&mut instance)
        .map_err(|error| StartError(format!("the system gave no random bytes: {error}")))?;
    Ok(u64::from_be_bytes(instance))
}
