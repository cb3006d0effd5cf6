//! The way to Redis: one connection that many calls share and that comes back by itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult,
    RetryMethod, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub},
    cluster_async::ClusterConnection,
    sentinel::SentinelClient,
};

use crate::{Address, Clients, Reach};

/// How many calls may wait to be written.
const WAITING_MAX: usize = 4096;

/// A connection. Clones share it.
#[derive(Clone)]
#[non_exhaustive]
pub enum Link {
    /// One server, or whichever is behind its address.
    Single(Server),
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
                let current = Arc::new(Mutex::new((0, manager)));
                Ok(Self::Single(Server { client: *client, current, reach: reach.clone() }))
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

    /// Whether an earlier try of the same call may have been done: a connection to a cluster repeats calls by itself, and gives the last
    /// try's error alone.
    pub fn may_have_repeated(&self, error: &RedisError) -> bool {
        matches!(self, Self::Cluster(..)) && !matches!(error.retry_method(), RetryMethod::NoRetry)
    }

    /// A connection of its own that listens.
    pub async fn listener(&self) -> RedisResult<PubSub> {
        match self {
            Self::Single(Server { client, .. }) | Self::Cluster(client, _) => client.get_async_pubsub().await,
            Self::Sentinel(master) => {
                let client = master.client.lock().await.async_get_client().await?;
                client.get_async_pubsub().await
            }
        }
    }

    /// A connection of its own that ends when it breaks: what is asked over it is asked of the server that heard all that went before.
    /// Not to a cluster.
    pub async fn dedicated(&self) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Single(Server { client, reach, .. }) => {
                client.get_multiplexed_async_connection_with_config(&connection_config(reach)).await
            }
            Self::Sentinel(master) => {
                let client = master.client.lock().await.async_get_client().await?;
                client.get_multiplexed_async_connection_with_config(&connection_config(&master.reach)).await
            }
            Self::Cluster(..) => {
                Err((ErrorKind::InvalidClientConfig, "a cluster has no connection to all of it").into())
            }
        }
    }
}

fn connection_config(reach: &Reach) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(Some(reach.answer_within))
        .set_connection_timeout(Some(reach.connect_within))
        .set_pipeline_buffer_size(WAITING_MAX)
}

/// No connection came about, so nothing was sent over it: the error says so, and not that an answer was lost.
fn not_sent(error: RedisError) -> RedisError {
    if !error.is_io_error() || error.is_connection_refusal() {
        return error;
    }
    std::io::Error::new(
        std::io::ErrorKind::ConnectionRefused,
        format!("no connection to the master: {error}"),
    )
    .into()
}

/// Whether a server says that it is a replica: whoever wants the master must connect again. Servers' errors come as values.
fn is_read_only(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "READONLY")
}

/// One server by its address, which may be a virtual one that moves to another server.
#[derive(Clone)]
pub struct Server {
    client: Client,
    current: Arc<Mutex<(u64, ConnectionManager)>>,
    reach: Reach,
}

impl Server {
    fn connection(&self) -> (u64, ConnectionManager) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server that was demoted keeps its connections: leaves this one, unless that was done before.
    fn leave(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number
            && let Ok(manager) = self.client.get_connection_manager_lazy(manager_config(&self.reach))
        {
            *current = (number + 1, manager);
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
        let config = connection_config(&self.reach);
        let connection = client.get_async_connection_with_config(&config).await.map_err(not_sent)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Some(connection.clone()));
        Ok((current.0, connection))
    }

    /// Forgets a connection that failed or leads to a replica, unless that was done before.
    fn forget(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            current.1 = None;
        }
    }

    /// Whether another connection may fare better after this answer.
    fn is_lost<T>(answer: &RedisResult<T>, is_read_only: impl Fn(&T) -> bool) -> bool {
        answer.as_ref().map_or_else(RedisError::is_io_error, is_read_only)
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(server) => Box::pin(async move {
                let (number, mut manager) = server.connection();
                let answer = manager.req_packed_command(cmd).await;
                if answer.as_ref().is_ok_and(is_read_only) {
                    server.leave(number);
                }
                answer
            }),
            Self::Cluster(_, cluster) => cluster.req_packed_command(cmd),
            Self::Sentinel(master) => Box::pin(async move {
                let (number, mut connection) = master.connection().await?;
                let answer = connection.req_packed_command(cmd).await;
                if Master::is_lost(&answer, is_read_only) {
                    master.forget(number);
                }
                answer
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
            Self::Single(server) => Box::pin(async move {
                let (number, mut manager) = server.connection();
                let answer = manager.req_packed_commands(pipeline, offset, count).await;
                if answer.as_ref().is_ok_and(|values| values.iter().any(is_read_only)) {
                    server.leave(number);
                }
                answer
            }),
            Self::Cluster(_, cluster) => cluster.req_packed_commands(pipeline, offset, count),
            Self::Sentinel(master) => Box::pin(async move {
                let (number, mut connection) = master.connection().await?;
                let answer = connection.req_packed_commands(pipeline, offset, count).await;
                if Master::is_lost(&answer, |values| values.iter().any(is_read_only)) {
                    master.forget(number);
                }
                answer
            }),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(server) => server.connection().1.get_db(),
            Self::Cluster(_, cluster) => cluster.get_db(),
            Self::Sentinel(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_connection_that_did_not_come_about_lost_no_answer() {
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionRefused] {
            assert!(not_sent(RedisError::from(io::Error::from(kind))).is_connection_refusal(), "{kind}");
        }
        let refused = RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"));
        assert_eq!(not_sent(refused).kind(), ErrorKind::AuthenticationFailed);
    }
}
