//! Graceful shutdown.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly_core::{
    Monotonic,
    store::{StoreError, StoreErrorKind},
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot, watch},
    task::AbortHandle,
};

use crate::{
    Duly, Error,
    engine::{Command, catch_panic, is_in_handler},
    finish_on_drop::ABANDONED_BYTES_MAX,
    health::check_runtime,
    seconds,
};

/// How long released messages may take to be recorded after the grace period.
const RECORDING: Duration = seconds(5);
/// On a manual clock, the grace period ends after this much real time: a test that waits for the shutdown does not move
/// the clock.
const STANDSTILL: Duration = seconds(5);
/// How long the shutdown task may exceed its bound before a caller closes the store itself.
const OVERDUE: Duration = seconds(5);
/// The same in real time on a manual clock: the task waits for it twice.
const OVERDUE_STANDSTILL: Duration = seconds(15);

/// Whether a Duly is open, and what ends it.
pub(crate) struct Lifecycle {
    /// No new work is accepted.
    pub(crate) closed: AtomicBool,
    /// The store is closed: every call fails.
    pub(crate) ended: AtomicBool,
    pub(crate) shutdown: Shutdown,
    /// The runtime that it was started in. Work that outlives a call runs there.
    pub(crate) runtime: Handle,
    /// Bytes for calls that go on although their callers are gone.
    pub(crate) abandoned: Arc<Semaphore>,
    /// The tasks that end with it.
    pub(crate) tasks: Vec<AbortHandle>,
}

impl Lifecycle {
    pub(crate) fn new(tasks: Vec<AbortHandle>) -> Self {
        Self {
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            shutdown: Shutdown::default(),
            runtime: Handle::current(),
            abandoned: Arc::new(Semaphore::new(ABANDONED_BYTES_MAX)),
            tasks,
        }
    }
}

impl Drop for Lifecycle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The one shutdown of a Duly.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// The result, once it is done. The first call starts the shutdown task; every call waits for it.
    result: Mutex<Option<watch::Receiver<ShutdownResult>>>,
    /// Whether closing the store has begun.
    is_closing: AtomicBool,
    /// The result if a caller had to close the store.
    by_caller: tokio::sync::Mutex<ShutdownResult>,
}

type ShutdownResult = Option<Result<(), Error>>;

impl Duly {
    /// Shuts down: accepts nothing more, lets handlers and sinks finish within the grace period, releases the rest
    /// without counting an attempt, and closes the store. It ends within the grace period and a few seconds, whatever
    /// happens. If delivery had stopped before, the store is closed and the error says so.
    ///
    /// It may be called repeatedly: all calls wait for one shutdown and return its result. From then on every other
    /// call returns [`Error::Closed`], and [`Events::next`](crate::Events::next) returns `None`.
    ///
    /// It runs in a task of the runtime that this Duly was started in. Cancel safety: dropped midway, that task goes
    /// on. If that runtime has ended, the caller closes the store; if nobody drives it, a few seconds after the grace
    /// period.
    ///
    /// **Called in a handler** of this Duly, it starts the shutdown and returns at once, because the shutdown waits for
    /// that handler.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let mut result = self.start_shutdown();
        if is_in_handler(&self.inner.parts) {
            return Ok(());
        }
        let by_task = tokio::select! {
            biased;
            answer = result.wait_for(Option::is_some) => answer.ok().and_then(|answer| answer.clone()),
            () = self.shutdown_overdue() => None,
        };
        match by_task {
            Some(result) => result,
            None => self.shut_down_by_caller().await,
        }
    }

    fn start_shutdown(&self) -> watch::Receiver<ShutdownResult> {
        let mut result = self.inner.lifecycle.shutdown.result.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*result {
            return started.clone();
        }
        self.inner.lifecycle.closed.store(true, Ordering::Release);
        let (result_tx, result_rx) = watch::channel(None);
        *result = Some(result_rx.clone());
        let duly = self.clone();
        self.inner.lifecycle.runtime.spawn(async move {
            duly.stop_delivery().await;
            let closed = duly.close_store().await;
            result_tx.send_replace(Some(closed));
        });
        result_rx
    }

    /// Lets running calls finish within the grace period, and releases the rest.
    async fn stop_delivery(&self) {
        let inner = &self.inner;
        self.handlers().clear();
        let grace_end = self.grace_end();
        let (stopped_tx, stopped) = oneshot::channel();
        let _ = inner.parts.inputs.send(Command::Shutdown { grace_end, stopped_tx }.into());
        if self.wait_stopped(grace_end, stopped).await == WaitResult::Standstill {
            let (stopped_tx, stopped) = oneshot::channel();
            let now = inner.parts.clock.now().mono();
            let _ = inner.parts.inputs.send(Command::Shutdown { grace_end: now, stopped_tx }.into());
            self.wait_stopped(grace_end, stopped).await;
        }
    }

    async fn close_store(&self) -> Result<(), Error> {
        let inner = &self.inner;
        inner.lifecycle.tasks.iter().for_each(AbortHandle::abort);
        let was_closing = inner.lifecycle.shutdown.is_closing.swap(true, Ordering::AcqRel);
        let closed = match catch_panic(inner.parts.store.close()).await {
            // The shutdown task began to close it and did not finish.
            Ok(Err(error)) if was_closing && error.kind == StoreErrorKind::Closed => Ok(()),
            Ok(closed) => closed,
            Err(panic) => {
                let what =
                    format!("the store panicked while it was closed: {panic}; nothing accepted is lost");
                Err(StoreError::new(StoreErrorKind::Damaged, what))
            }
        };
        inner.lifecycle.ended.store(true, Ordering::Release);
        inner.parts.events.close();
        self.check_alive()?;
        Ok(closed?)
    }

    /// The shutdown task was dropped with its runtime, or nobody drives it.
    async fn shut_down_by_caller(&self) -> Result<(), Error> {
        let mut by_caller = self.inner.lifecycle.shutdown.by_caller.lock().await;
        if let Some(result) = &*by_caller {
            return result.clone();
        }
        check_runtime()?;
        tracing::warn!("runtime of this Duly does not run; store closed by the caller of shutdown");
        // Tasks that were dropped with their runtime are no failure of delivery.
        let result = match self.close_store().await {
            Err(Error::Stopped(_)) => Ok(()),
            result => result,
        };
        by_caller.insert(result).clone()
    }

    /// Waits until the shutdown task is overdue.
    async fn shutdown_overdue(&self) {
        let clock = &self.inner.parts.clock;
        let bound = self.grace_end().saturating_add(RECORDING + OVERDUE);
        tokio::select! {
            () = clock.sleep_until(bound) => {}
            () = standstill(clock.runs_by_itself(), OVERDUE_STANDSTILL) => {}
        }
    }

    pub(crate) fn grace_end(&self) -> Monotonic {
        self.inner.parts.clock.now().mono().saturating_add(self.inner.options.grace)
    }

    /// Waits until the driver has stopped, or must have. Returns at once in a handler, for which the driver may wait.
    pub(crate) async fn wait_stopped_outside_handler(
        &self,
        grace_end: Monotonic,
        waiting: oneshot::Receiver<()>,
    ) {
        if !is_in_handler(&self.inner.parts) {
            self.wait_stopped(grace_end, waiting).await;
        }
    }

    async fn wait_stopped(&self, grace_end: Monotonic, waiting: oneshot::Receiver<()>) -> WaitResult {
        let clock = &self.inner.parts.clock;
        tokio::select! {
            biased;
            _ = waiting => WaitResult::Done,
            () = clock.sleep_until(grace_end.saturating_add(RECORDING)) => {
                tracing::warn!("release timed out at shutdown; messages return when their leases end");
                WaitResult::Done
            }
            () = standstill(clock.runs_by_itself(), STANDSTILL) => WaitResult::Standstill,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum WaitResult {
    Done,
    /// The clock was not moved.
    Standstill,
}

async fn standstill(clock_runs: bool, limit: Duration) {
    // Outside of a runtime there is no timer to wait by.
    if clock_runs || Handle::try_current().is_err() {
        return std::future::pending().await;
    }
    #[expect(clippy::disallowed_methods, reason = "the clock of the library stands still")]
    tokio::time::sleep(limit).await;
}
