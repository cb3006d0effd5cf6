//! Health: whether messages can be accepted and delivered now.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use duly_core::{
    Clock, Monotonic, Store,
    store::{self, StoreError, StoreErrorKind},
};
use tokio::{runtime::Handle, sync::watch, task::AbortHandle};

use crate::{Duly, Error, engine::catch_panic, millis, seconds};

/// How long an answer of a healthy store is reused, unless a call of it failed meanwhile.
const HEALTHY_TTL: Duration = seconds(1);
/// The same for a store on a server, which sweeps check all the time anyway.
const HEALTHY_TTL_REMOTE: Duration = seconds(2);
/// How long an answer of a failing store is reused.
const FAILING_TTL: Duration = millis(200);
/// A store that does not answer within this time counts as failing.
const ANSWER_TIMEOUT: Duration = seconds(5);

/// The health of a Duly, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Messages are accepted. Too many pending ones is no failure.
    pub accepting: Result<(), StoreError>,
    /// Due messages are claimed, and their settlements recorded.
    pub claiming: Result<(), StoreError>,
    /// Background work of the store runs.
    pub background: Result<(), StoreError>,
    /// The delivery task runs.
    pub driver: Result<(), Error>,
    /// Why some messages wait while others go on: a part of the store is unreadable, or claims of some lanes fail. The
    /// node is still ready.
    pub degraded: Option<StoreError>,
}

impl Health {
    /// Whether all parts work; it may be degraded.
    pub fn is_ready(&self) -> bool {
        self.store().is_ok() && self.driver.is_ok()
    }

    /// The error of the first failing part of the store.
    pub fn store(&self) -> Result<(), StoreError> {
        self.accepting.clone().and_then(|()| self.claiming.clone()).and_then(|()| self.background.clone())
    }

    /// The error of a part of the store that fails with this kind, whichever part that is.
    pub fn failing_with(&self, kind: StoreErrorKind) -> Option<&StoreError> {
        let parts = [&self.accepting, &self.claiming, &self.background];
        parts.into_iter().filter_map(|part| part.as_ref().err()).find(|error| error.kind == kind)
    }

    /// Each part by name, and its error.
    pub fn parts(&self) -> [(&'static str, Option<String>); 4] {
        let words = |part: &Result<(), StoreError>| part.as_ref().err().map(ToString::to_string);
        [
            ("accepting", words(&self.accepting)),
            ("claiming", words(&self.claiming)),
            ("background", words(&self.background)),
            ("driver", self.driver.as_ref().err().map(ToString::to_string)),
        ]
    }
}

impl Duly {
    /// Checks the health: the store's own report, and the results of recent calls. However often this is called, the
    /// store is asked at most once a second (every two seconds on a server), and after a failed call.
    ///
    /// Cancel safety: dropped midway, nothing has changed; the check goes on, and the next call uses its result.
    pub async fn health(&self) -> Health {
        if let Err(none) = check_runtime() {
            let store::Health { accepting, claiming, background, degraded, .. } =
                store::Health::failing(unanswered(&none.to_string()));
            return Health {
                accepting,
                claiming,
                background,
                driver: self.check_running().and(Err(none)),
                degraded,
            };
        }
        let parts = &self.inner.parts;
        let failures = parts.events.counters.failures();
        let store_health = parts.health_cache.get(&parts.store, &parts.clock, failures).await;
        let now = parts.clock.now().mono();
        let monitor = &parts.events.monitor;
        // Of a store that refuses messages for a part of it, batches with such messages fail: it checks the others itself. One
        // that does not answer is no refusal.
        let inserts = if store_health.refuses_some { Ok(()) } else { monitor.check_inserts(now) };
        let inserts = inserts.and(monitor.check_inserts_answered(now));
        let claiming = monitor.check_claiming(now, self.inner.options.lease);
        Health {
            accepting: store_health.accepting.and(inserts),
            claiming: store_health.claiming.and(claiming),
            background: store_health.background,
            driver: self.check_running(),
            degraded: store_health.degraded.or_else(|| monitor.degraded(now)),
        }
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.inner.lifecycle.ended.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            self.check_alive()
        }
    }

    /// Asks the store for its health now. After a failed sync it is closed: only a restart shows what is on disk.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn store_health(&self) -> Result<(), StoreError> {
        if self.inner.lifecycle.ended.load(Ordering::Acquire) {
            return Err(StoreError::new(StoreErrorKind::Closed, Error::Closed.to_string()));
        }
        check_runtime().map_err(|none| unanswered(&none.to_string()))?;
        self.inner.parts.store.health().await.whole()
    }

    /// Waits until delivery has stopped unexpectedly, and returns the reason. From then on every call fails with it:
    /// restart the process.
    ///
    /// Cancel safety: it may be dropped and called again at any time, as in `tokio::select!`.
    pub async fn failed(&self) -> Error {
        self.inner.parts.liveness.failed().await
    }
}

/// Whether the tasks that delivery needs are alive.
#[derive(Debug)]
pub(crate) struct Liveness(watch::Sender<Option<Error>>);

impl Default for Liveness {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Liveness {
    /// Marks delivery as stopped, with the reason.
    pub(crate) fn stop(&self, why: String) {
        tracing::error!(why, "delivery stopped");
        self.0.send_if_modified(|state| {
            let first = state.is_none();
            state.get_or_insert(Error::Stopped(why));
            first
        });
    }

    /// Starts a task that must run as long as this Duly: if it ends, delivery counts as stopped.
    pub(crate) fn supervise(
        self: Arc<Self>,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let supervised = async move {
            match catch_panic(work).await {
                Ok(()) => self.stop(format!("{task} returned")),
                Err(panic) => self.stop(format!("{task} {panic}")),
            }
        };
        tokio::spawn(supervised).abort_handle()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.borrow().clone().map_or(Ok(()), Err)
    }

    async fn failed(&self) -> Error {
        let mut state = self.0.subscribe();
        loop {
            if let Err(stopped) = self.check() {
                return stopped;
            }
            // The sender is borrowed here, so that it exists.
            let _ = state.changed().await;
        }
    }
}

/// The last health of the store.
#[derive(Debug, Default)]
pub(crate) struct HealthCache(Arc<Mutex<CachedHealth>>);

#[derive(Debug, Default)]
struct CachedHealth {
    last: Option<HealthAnswer>,
    /// The check in progress: later callers wait for its result.
    in_progress: Option<watch::Receiver<Option<store::Health>>>,
}

#[derive(Debug)]
struct HealthAnswer {
    at: Monotonic,
    health: store::Health,
    /// Failed calls when it was requested.
    failures: u64,
}

impl HealthAnswer {
    fn is_fresh(&self, now: Monotonic, failures: u64, is_remote: bool) -> bool {
        let age = now.since(self.at);
        if self.health.whole().is_err() {
            return age < FAILING_TTL;
        }
        // A call that failed since may be the first sign of a failure.
        self.failures == failures && age < if is_remote { HEALTHY_TTL_REMOTE } else { HEALTHY_TTL }
    }
}

impl HealthCache {
    async fn get(&self, store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, failures: u64) -> store::Health {
        let mut in_progress = {
            let mut cached = lock(&self.0);
            let (now, is_remote) = (clock.now().mono(), store.durability().is_remote());
            if let Some(last) = cached.last.as_ref().filter(|last| last.is_fresh(now, failures, is_remote)) {
                return last.health.clone();
            }
            match &cached.in_progress {
                Some(in_progress) => in_progress.clone(),
                None => {
                    let (answer, in_progress) = watch::channel(None);
                    cached.in_progress = Some(in_progress.clone());
                    // In a task of its own, because the first caller may be dropped while others wait.
                    tokio::spawn(refresh(self.0.clone(), store.clone(), clock.clone(), failures, answer));
                    in_progress
                }
            }
        };
        match in_progress.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(health)) => health.clone(),
            _ => store::Health::failing(unanswered("the runtime is stopping")),
        }
    }
}

async fn refresh(
    cached: Arc<Mutex<CachedHealth>>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    failures: u64,
    answer: watch::Sender<Option<store::Health>>,
) {
    let end = clock.now().mono().saturating_add(ANSWER_TIMEOUT);
    let health = tokio::select! {
        biased;
        store_health = catch_panic(store.health()) => store_health.unwrap_or_else(|panic| store::Health::failing(unanswered(&panic))),
        () = clock.sleep_until(end) => {
            store::Health::failing(unanswered(&format!("no answer within {ANSWER_TIMEOUT:?}")))
        }
    };
    let mut cached = lock(&cached);
    cached.last = Some(HealthAnswer { at: clock.now().mono(), health: health.clone(), failures });
    cached.in_progress = None;
    answer.send_replace(Some(health));
}

/// Stores and tasks would panic outside of a Tokio runtime.
pub(crate) fn check_runtime() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| Error::NoRuntime)
}

fn unanswered(why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("the store does not report its health: {why}"))
}

fn lock(cached: &Mutex<CachedHealth>) -> MutexGuard<'_, CachedHealth> {
    cached.lock().unwrap_or_else(PoisonError::into_inner)
}
