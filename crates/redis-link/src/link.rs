//! The way to Redis: one connection that many calls share and that comes back by itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub},
    cluster_async::ClusterConnection,
    sentinel::SentinelClient,
};

use crate::{Address, Clients, Reach};

/// How many calls may wait to be written.
const WAITING_MAX: usize = 4096;

/// A connection. Clones share it.
#[derive(Clone)]
pub enum Link {
    /// One server.
    Single(Client, ConnectionManager),
    /// A cluster, and one of its nodes for hints.
    Cluster(Client, ClusterConnection),
    /// Whichever server the sentinels call the master.
    Sentinel(Master),
}

impl Link {
    /// Connects to an address.
    pub async fn connect(address: &Address, reach: &Reach) -> RedisResult<Self> {
        match (Clients::new(address, reach)?, address) {
            (Clients::Single(client), _) => {
                let manager = client.get_connection_manager_with_config(manager_config(reach)).await?;
                Ok(Self::Single(*client, manager))
            }
            (Clients::Cluster(client), Address::Cluster(nodes)) => {
                let one = reach.client(&nodes[0])?;
                Ok(Self::Cluster(one, client.get_async_connection().await?))
            }
            (Clients::Sentinel(client), _) => {
                let client = Arc::new(tokio::sync::Mutex::new(*client));
                let master = Master { client, current: Arc::default(), reach: reach.clone() };
                master.connection().await?;
                Ok(Self::Sentinel(master))
            }
            (Clients::Cluster(_), _) => {
                Err((ErrorKind::InvalidClientConfig, "a cluster of an address that names none").into())
            }
        }
    }

    /// A connection of its own that listens.
    pub async fn listener(&self) -> RedisResult<PubSub> {
        match self {
            Self::Single(client, _) | Self::Cluster(client, _) => client.get_async_pubsub().await,
            Self::Sentinel(master) => {
                let client = master.client.lock().await.async_get_client().await?;
                client.get_async_pubsub().await
            }
        }
    }
}

fn manager_config(reach: &Reach) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_response_timeout(Some(reach.answer_within))
        .set_connection_timeout(Some(reach.connect_within))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_pipeline_buffer_size(WAITING_MAX)
}

/// The master of the moment. After a failure the sentinels are asked again who it is.
#[derive(Clone)]
pub struct Master {
    client: Arc<tokio::sync::Mutex<SentinelClient>>,
    current: Arc<Mutex<(u64, Option<MultiplexedConnection>)>>,
    reach: Reach,
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
            .set_response_timeout(Some(self.reach.answer_within))
            .set_connection_timeout(Some(self.reach.connect_within))
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
