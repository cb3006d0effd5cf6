//! Messages that replicas must have before they are accepted: Redis's `WAIT`.
//!
//! `WAIT` holds up all that comes behind it on its connection, and speaks of what came over it before. So it has connections of its own,
//! each for one batch at a time, which do not come back by themselves: a new one may lead to another server.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use duly_core::store::{StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    RedisStore,
    fault::{connect_failed, sorted},
};

/// How many batches wait for replicas at the same time, each on a connection of its own.
const CONNECTIONS_MAX: usize = 8;
/// How long replicas may take to say that they have a message.
const WITHIN: Duration = Duration::from_secs(2);
/// How long a batch waits for one of the connections. Behind replicas that hang it would only wait for others that wait.
const CONNECTION_WITHIN: Duration = Duration::from_secs(2);
/// How long they may take to answer when nothing waits for it but the question whether they would.
const CHECK_WITHIN: Duration = Duration::from_millis(500);

/// The connections over which messages go that replicas must have.
#[derive(Debug)]
pub(super) struct Replicas {
    permits: Semaphore,
    idle: Mutex<Vec<MultiplexedConnection>>,
    /// What the last batch came to.
    last: Mutex<Option<StoreError>>,
}

impl Default for Replicas {
    fn default() -> Self {
        Self { permits: Semaphore::new(CONNECTIONS_MAX), idle: Mutex::default(), last: Mutex::default() }
    }
}

impl Replicas {
    fn take(&self) -> Option<MultiplexedConnection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put_back(&self, connection: MultiplexedConnection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// One failed: those that stood beside it lead to the same server, and would fail the next batches one by one.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn record(&self, outcome: &Result<(), StoreError>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = outcome.as_ref().err().cloned();
    }

    fn last(&self) -> Result<(), StoreError> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// A connection, and the permit to use it.
pub(super) struct ReplicatedConnection<'a> {
    pub(super) connection: MultiplexedConnection,
    _permit: SemaphorePermit<'a>,
}

impl RedisStore {
    /// A connection over which one batch is written and then waited for.
    pub(super) async fn replicated_connection(&self) -> Result<ReplicatedConnection<'_>, StoreError> {
        let busy = || {
            let what = "replicas are slow to say that they have messages, and as many as may wait for them do; try again";
            StoreError::new(StoreErrorKind::Unavailable, what)
        };
        let permit = tokio::time::timeout(CONNECTION_WITHIN, self.replicas.permits.acquire()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(busy)?;
        self.replicated_by(permit).await
    }

    async fn replicated_by<'a>(
        &'a self,
        permit: SemaphorePermit<'a>,
    ) -> Result<ReplicatedConnection<'a>, StoreError> {
        let connection = match self.replicas.take() {
            Some(connection) => connection,
            None => self.link.dedicated().await.map_err(|error| connect_failed(&error))?,
        };
        Ok(ReplicatedConnection { connection, _permit: permit })
    }

    /// Waits until as many replicas as the options ask for have what was written over this connection.
    pub(super) async fn await_replicas(
        &self,
        replicated: ReplicatedConnection<'_>,
    ) -> Result<(), StoreError> {
        let outcome = self.replicas_have_it(replicated, WITHIN).await;
        self.replicas.record(&outcome);
        outcome
    }

    async fn replicas_have_it(
        &self,
        mut replicated: ReplicatedConnection<'_>,
        within: Duration,
    ) -> Result<(), StoreError> {
        let wanted = u64::from(self.options.wait_replicas);
        // Since Redis 7.2, `WAIT` speaks of the last command of its connection that changed something, and a message that is known already
        // changes nothing. This does, so it stands for all that was written before it, over whichever connection.
        let mut commands = redis::pipe();
        commands.cmd("SET").arg(&self.keys.mark).arg(1).ignore();
        commands.cmd("WAIT").arg(wanted).arg(within.as_millis() as u64);
        let have = commands.query_async::<(u64,)>(&mut replicated.connection).await;
        // A connection that failed is not put back.
        let (have,) =
            have.inspect_err(|_| self.replicas.forget_idle()).map_err(|error| sorted(&error).in_part())?;
        if have >= wanted {
            self.replicas.put_back(replicated.connection);
            return Ok(());
        }
        // It may lead to a master whose replicas follow another one by now, as may those that stood beside it. New ones go by the address.
        self.replicas.forget_idle();
        let what = format!(
            "Redis has it, but only {have} of {wanted} replicas said so within {within:?}; send it again with the same id \
             when they are back"
        );
        Err(StoreError::new(StoreErrorKind::Unanswered, what))
    }

    /// Whether a message that is sent now would be waited for in vain.
    pub(super) async fn check_replicas(&self) -> Result<(), StoreError> {
        if self.options.wait_replicas == 0 {
            return Ok(());
        }
        // Others wait already: what came of the last is as good an answer.
        let Ok(permit) = self.replicas.permits.try_acquire() else { return self.replicas.last() };
        let replicated = self.replicated_by(permit).await?;
        self.replicas_have_it(replicated, CHECK_WITHIN).await
    }
}
