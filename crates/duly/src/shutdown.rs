//! The clean end.

use std::{
    sync::{
        Mutex, PoisonError,
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
    sync::{oneshot, watch},
};

use crate::{
    Duly, Error,
    engine::{Command, caught, is_in_handler},
    seconds,
};

/// After the grace of handlers and sinks, what was handed back may take this long to be recorded.
const RECORDING: Duration = seconds(5);
/// On a clock that a test moves, the grace ends after this much real time at the latest: nobody moves the clock who waits for the shutdown.
const STANDSTILL: Duration = seconds(5);
/// How much longer than its bound the task that shuts down may take before a caller closes the store itself.
const OVERDUE: Duration = seconds(5);
/// The same in real time, on a clock that a test moves: the task waits for it twice.
const OVERDUE_STANDSTILL: Duration = seconds(15);

/// The one shutdown of a Duly.
#[derive(Default)]
pub(crate) struct Shutdown {
    /// How it went, once it is done. The first call starts the task that answers; every call waits for it.
    result: Mutex<Option<watch::Receiver<Answer>>>,
    /// The store was asked to close.
    is_closing: AtomicBool,
    /// What callers answer if the task does not; one of them closes the store.
    by_caller: tokio::sync::Mutex<Answer>,
}

type Answer = Option<Result<(), Error>>;

impl Duly {
    /// Stops cleanly: accepts nothing more, lets handlers and sinks finish within their time of grace, hands the rest
    /// back without counting a try, and closes the store. Ends within that grace and a few seconds, whatever happens. If
    /// delivery had stopped before by itself, the store is closed and the error says so.
    ///
    /// It may be called any number of times, at the same time or later: all calls wait for the one shutdown, and get its result. From then on
    /// every other call answers [`Error::Closed`], and [`Events::next`](crate::Events::next) gives `None`.
    ///
    /// It runs in a task of the runtime that this Duly was started in. Cancel safety: dropped midway, that task goes on. If that runtime has ended, the
    /// caller closes the store at once; if nobody drives it, when the grace and a few seconds are over.
    ///
    /// **Called in a handler** of this Duly, it starts the shutdown and returns at once, as the shutdown waits for that handler.
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
            None => self.shut_down_here().await,
        }
    }

    fn start_shutdown(&self) -> watch::Receiver<Answer> {
        let mut result = self.inner.shutdown.result.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*result {
            return started.clone();
        }
        self.inner.closed.store(true, Ordering::Release);
        let (result_tx, result_rx) = watch::channel(None);
        *result = Some(result_rx.clone());
        let duly = self.clone();
        self.inner.runtime.spawn(async move {
            duly.stop_delivery().await;
            let closed = duly.close_store().await;
            result_tx.send_replace(Some(closed));
        });
        result_rx
    }

    /// Lets what is under way finish within its grace, and hands back the rest.
    async fn stop_delivery(&self) {
        let inner = &self.inner;
        self.handling().clear();
        let grace_end = self.grace_end();
        let (stopped_tx, stopped) = oneshot::channel();
        let _ = inner.parts.inputs.send(Command::Shutdown { grace_end, stopped_tx }.into());
        if self.in_time(grace_end, stopped).await == Waited::Standstill {
            let (stopped_tx, stopped) = oneshot::channel();
            let now = inner.parts.clock.now().mono();
            let _ = inner.parts.inputs.send(Command::Shutdown { grace_end: now, stopped_tx }.into());
            self.in_time(grace_end, stopped).await;
        }
    }

    async fn close_store(&self) -> Result<(), Error> {
        let inner = &self.inner;
        inner.tasks.iter().for_each(tokio::task::AbortHandle::abort);
        let was_closing = inner.shutdown.is_closing.swap(true, Ordering::AcqRel);
        let closed = match caught(inner.parts.store.close()).await {
            // The task began to close it and did not come to its end; what it left open is closed now.
            Ok(Err(error)) if was_closing && error.kind == StoreErrorKind::Closed => Ok(()),
            Ok(closed) => closed,
            Err(panic) => {
                let what =
                    format!("the store panicked while it was closed: {panic}; nothing accepted is lost");
                Err(StoreError::new(StoreErrorKind::Damaged, what))
            }
        };
        inner.ended.store(true, Ordering::Release);
        inner.parts.events.close();
        self.check_alive()?;
        Ok(closed?)
    }

    /// The task that shuts down was dropped with its runtime, or nobody drives it.
    async fn shut_down_here(&self) -> Result<(), Error> {
        let mut by_caller = self.inner.shutdown.by_caller.lock().await;
        if let Some(result) = &*by_caller {
            return result.clone();
        }
        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        tracing::warn!("runtime of this Duly does not run; store closed by the caller of shutdown");
        // Tasks that were dropped with their runtime are no fault of delivery.
        let result = match self.close_store().await {
            Err(Error::Stopped(_)) => Ok(()),
            result => result,
        };
        by_caller.insert(result).clone()
    }

    /// The task that shuts down should have been done for a while.
    async fn shutdown_overdue(&self) {
        let clock = &self.inner.parts.clock;
        let bound = self.grace_end().saturating_add(RECORDING + OVERDUE);
        tokio::select! {
            () = clock.sleep_until(bound) => {}
            () = standstill(clock.runs_by_itself(), OVERDUE_STANDSTILL) => {}
        }
    }

    pub(crate) fn grace_end(&self) -> Monotonic {
        self.inner.parts.clock.now().mono().saturating_add(self.inner.grace)
    }

    /// Waits until the driver is done, or surely should be. In a handler it does not wait: that may be what the driver waits for.
    pub(crate) async fn bounded(&self, grace_end: Monotonic, waiting: oneshot::Receiver<()>) {
        if !is_in_handler(&self.inner.parts) {
            self.in_time(grace_end, waiting).await;
        }
    }

    async fn in_time(&self, grace_end: Monotonic, waiting: oneshot::Receiver<()>) -> Waited {
        let clock = &self.inner.parts.clock;
        tokio::select! {
            biased;
            _ = waiting => Waited::Done,
            () = clock.sleep_until(grace_end.saturating_add(RECORDING)) => {
                tracing::warn!("release timed out at shutdown; messages return when their leases end");
                Waited::Done
            }
            () = standstill(clock.runs_by_itself(), STANDSTILL) => Waited::Standstill,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Waited {
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
