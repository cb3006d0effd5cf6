//! The way to Redis: one connection that many calls share and that comes back by itself.

use std::time::Duration;

use duly_core::store::{StoreError, StoreErrorKind};
use redis::{
    Client, Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
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
    Single(ConnectionManager),
}

impl Link {
    /// Connects to `redis://…` or `rediss://…`.
    pub(super) async fn connect(url: &str) -> Result<Self, StoreError> {
        let unavailable = |what: String| StoreError::new(StoreErrorKind::Unavailable, what);
        // The address may hold a password: it is never told.
        let client = Client::open(url)
            .map_err(|error| unavailable(format!("store.redis is not an address of Redis: {error}")))?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(500))
            .set_pipeline_buffer_size(WAITING_MAX);
        let manager = client.get_connection_manager_with_config(config).await;
        manager.map(Self::Single).map_err(|error| super::fault::sorted(&error))
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(manager) => manager.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(manager) => manager.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(manager) => manager.get_db(),
        }
    }
}
