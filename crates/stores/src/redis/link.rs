//! The way to Redis: one connection that many calls share and that comes back by itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::store::{StoreError, StoreErrorKind};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, TlsMode, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};

use super::{
    address::{Address, is_tls},
    fault::sorted,
};

/// Whoever does not answer within this is taken for gone; scripts take a few milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How many calls may wait to be written.
const WAITING_MAX: usize = 4096;

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) enum Link {
    /// One server.
    Single(Client, ConnectionManager),
    /// A cluster, and one of its nodes for hints.
    Cluster(Client, ClusterConnection),
    /// Whichever server the sentinels call the master.
    Sentinel(Master),
}

impl Link {
    /// Connects to an address as [`Address`] reads it.
    pub(super) async fn connect(url: &str) -> Result<Self, StoreError> {
        let address = Address::parse(url).map_err(|what| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                format!("store.redis is not an address of Redis: {what}"),
            )
        })?;
        Self::to(address).await.map_err(|error| sorted(&error))
    }

    async fn to(address: Address) -> RedisResult<Self> {
        match address {
            Address::Single(info) => {
                let client = Client::open(info)?;
                let manager = client.get_connection_manager_with_config(manager_config()).await?;
                Ok(Self::Single(client, manager))
            }
            Address::Cluster(nodes) => {
                let one = Client::open(nodes[0].clone())?;
                // What moved is asked for where it went; the scheduler tries the rest again.
                let client = ClusterClient::builder(nodes)
                    .retries(3)
                    .connection_timeout(CONNECT_WITHIN)
                    .response_timeout(ANSWER_WITHIN)
                    .build()?;
                Ok(Self::Cluster(one, client.get_async_connection().await?))
            }
            Address::Sentinel { sentinels, name, master } => {
                let mut info = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info(master.redis_settings().clone());
                if is_tls(&master) {
                    info = info.set_tls_mode(TlsMode::Secure);
                }
                let client = SentinelClient::build(sentinels, name, Some(info), SentinelServerType::Master)?;
                let master =
                    Master { client: Arc::new(tokio::sync::Mutex::new(client)), current: Arc::default() };
                master.connection().await?;
                Ok(Self::Sentinel(master))
            }
        }
    }

    /// A connection of its own that listens.
    pub(super) async fn listener(&self) -> RedisResult<PubSub> {
        match self {
            Self::Single(client, _) | Self::Cluster(client, _) => client.get_async_pubsub().await,
            Self::Sentinel(master) => {
                let client = master.client.lock().await.async_get_client().await?;
                client.get_async_pubsub().await
            }
        }
    }
}

fn manager_config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_response_timeout(Some(ANSWER_WITHIN))
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_pipeline_buffer_size(WAITING_MAX)
}

/// The master of the moment. After a failure the sentinels are asked again who it is.
#[derive(Clone)]
pub(super) struct Master {
    client: Arc<tokio::sync::Mutex<SentinelClient>>,
    current: Arc<Mutex<(u64, Option<MultiplexedConnection>)>>,
}

impl Master {
    /// The connection, and which one it is.
    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let known = || {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.1.clone().map(|connection| (current.0, connection))
        };
        if let Some(known) = known() {
            return Ok(known);
        }
        let mut client = self.client.lock().await;
        // Another call may have asked the sentinels while this one waited.
        if let Some(known) = known() {
            return Ok(known);
        }
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_pipeline_buffer_size(WAITING_MAX);
        let connection = client.get_async_connection_with_config(&config).await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Some(connection.clone()));
        Ok((current.0, connection))
    }

    /// Forgets a connection that failed, unless that was done before.
    fn judge<T>(&self, number: u64, answer: RedisResult<T>) -> RedisResult<T> {
        let gone = |error: &RedisError| {
            error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        };
        if answer.as_ref().is_err_and(gone) {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.0 == number {
                current.1 = None;
            }
        }
        answer
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(_, manager) => manager.req_packed_command(cmd),
            Self::Cluster(_, cluster) => cluster.req_packed_command(cmd),
            Self::Sentinel(master) => Box::pin(async move {
                let (number, mut connection) = master.connection().await?;
                master.judge(number, connection.req_packed_command(cmd).await)
            }),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(_, manager) => manager.req_packed_commands(pipeline, offset, count),
            Self::Cluster(_, cluster) => cluster.req_packed_commands(pipeline, offset, count),
            Self::Sentinel(master) => Box::pin(async move {
                let (number, mut connection) = master.connection().await?;
                master.judge(number, connection.req_packed_commands(pipeline, offset, count).await)
            }),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(_, manager) => manager.get_db(),
            Self::Cluster(_, cluster) => cluster.get_db(),
            Self::Sentinel(_) => 0,
        }
    }
}
