//! Whether the database can be reached. The pool reports that only at its deadline, and without the cause: callers cannot distinguish a
//! pool whose connections are all in use from a server that does not answer.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use duly_core::store::{StoreError, StoreErrorKind};
use sqlx::{ConnectOptions, Connection, Pool, pool::PoolConnection};
use tokio::sync::Mutex;

use super::fault::Fault;

/// After this long without a connection, a caller checks whether the server can be reached.
const ASK_AFTER: Duration = Duration::from_secs(3);

/// The result of the last check.
#[derive(Debug, Default)]
pub(super) struct ConnectivityCheck {
    /// How often it was asked.
    checks: AtomicU64,
    /// Why it cannot be reached, if so.
    failure: Mutex<Option<StoreError>>,
}

impl ConnectivityCheck {
    /// A connection of the pool, or why the database cannot be reached.
    pub(super) async fn acquire<DB: sqlx::Database>(
        &self,
        pool: &Pool<DB>,
    ) -> Result<PoolConnection<DB>, Fault> {
        let mut acquired = std::pin::pin!(pool.acquire());
        if let Ok(came) = tokio::time::timeout(ASK_AFTER, &mut acquired).await {
            return Ok(came?);
        }
        tokio::select! {
            came = acquired => Ok(came?),
            failure = self.failure(pool) => Err(failure.into()),
        }
    }

    /// Ends only if the server cannot be reached.
    async fn failure<DB: sqlx::Database>(&self, pool: &Pool<DB>) -> StoreError {
        let checks = self.checks.load(Ordering::Acquire);
        // One asks for all who wait: a database at its limit has no room for many who only want to know.
        let mut failure = self.failure.lock().await;
        if self.checks.load(Ordering::Acquire) == checks {
            *failure = match pool.connect_options().connect().await {
                Ok(connection) => {
                    let _ = connection.close().await;
                    None
                }
                Err(error) => Some(why(error)),
            };
            self.checks.fetch_add(1, Ordering::Release);
        }
        let failure = failure.clone();
        match failure {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

/// Why the server refuses connections, for the operator.
pub(super) fn why(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Io(ref io) => unreachable(&io.to_string()).with_source(error),
        other => Fault::from(other).into(),
    }
}

pub(super) fn unreachable(why: &str) -> StoreError {
    let what =
        format!("the database cannot be reached: {why}; see whether it is up and the address is right");
    StoreError::new(StoreErrorKind::Unavailable, what)
}
