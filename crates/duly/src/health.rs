//! Whether a message could be accepted and delivered now.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use duly_core::{
    Clock, Monotonic, Store,
    store::{self, StoreError, StoreErrorKind},
};
use tokio::{sync::watch, task::AbortHandle};

use crate::{Duly, Error, engine::caught, millis, seconds};

/// An answer of the store is used again for this long, unless a call of it failed meanwhile.
const GOOD_FOR: Duration = seconds(1);
/// The same for a store behind a network: every question costs somebody else something, and sweeps ask it all the time. What fails between
/// two sweeps is known within this.
const GOOD_FOR_FAR: Duration = seconds(2);
/// One that says that something fails is asked again sooner.
const FAILING_FOR: Duration = millis(200);
/// A store that has not said by then how it is does not work.
const ANSWER_WITHIN: Duration = seconds(5);

/// Whether a message could be accepted and delivered now, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// New messages are taken. Too many of them pending is no failure.
    pub accepting: Result<(), StoreError>,
    /// What is due is claimed, and what became of it recorded.
    pub claiming: Result<(), StoreError>,
    /// What the store does beside the calls goes on.
    pub background: Result<(), StoreError>,
    /// The task that delivers runs.
    pub driver: Result<(), Error>,
    /// Why some messages wait while all others go on: a part of the store cannot be read, or the claims of some lanes fail and those of
    /// others do not. That is no reason to send nothing here.
    pub degraded: Option<StoreError>,
}

impl Health {
    /// Whether all parts are well. One that is only degraded is.
    pub fn is_ready(&self) -> bool {
        self.store().is_ok() && self.driver.is_ok()
    }

    /// The first part of the store that fails, if any.
    pub fn store(&self) -> Result<(), StoreError> {
        self.accepting.clone().and_then(|()| self.claiming.clone()).and_then(|()| self.background.clone())
    }

    /// What a part of the store says that fails with this kind of error, whichever part that is: one that fails for another reason does
    /// not hide it.
    pub fn failing_with(&self, kind: StoreErrorKind) -> Option<&StoreError> {
        let parts = [&self.accepting, &self.claiming, &self.background];
        parts.into_iter().filter_map(|part| part.as_ref().err()).find(|error| error.kind == kind)
    }

    /// Each part by name, and what is wrong with it.
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
    /// Whether a message could be accepted and delivered now: what the store says of itself, and how calls of it ended. The
    /// store is asked at most once a second, or every two seconds if it is behind a network, and when a call of it has
    /// failed; however often this is called.
    ///
    /// Cancel safety: dropped midway, nothing has changed; the question that was asked goes on, and its answer serves the next call.
    pub async fn health(&self) -> Health {
        let parts = &self.inner.parts;
        let failures = parts.events.tally.failures();
        let said = parts.checks.ask(&parts.store, &parts.clock, failures).await;
        let now = parts.clock.now().mono();
        let observed = &parts.events.observed;
        Health {
            accepting: said.accepting.and_then(|()| observed.accepting(now)),
            claiming: said
                .claiming
                .and_then(|()| observed.claiming(now))
                .and_then(|()| observed.answering(now, self.inner.lease)),
            background: said.background,
            driver: self.check_running(),
            degraded: said.degraded.or_else(|| observed.degraded(now)),
        }
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.inner.ended.load(Ordering::Acquire) { Err(Error::Closed) } else { self.check_alive() }
    }

    /// What the store says of itself, asked now. After a failed sync it is closed: only a restart finds out what is on
    /// the disk.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn store_health(&self) -> Result<(), StoreError> {
        if self.inner.ended.load(Ordering::Acquire) {
            return Err(StoreError::new(StoreErrorKind::Closed, Error::Closed.to_string()));
        }
        self.inner.parts.store.health().await.whole()
    }

    /// Ends when delivery has stopped although nobody asked for it, with the reason. Every call answers with it from then
    /// on: the process is to be restarted.
    ///
    /// Cancel safety: it may be dropped and called again at any time, as in `tokio::select!`.
    pub async fn failed(&self) -> Error {
        self.inner.parts.liveness.failed().await
    }
}

/// Whether the tasks without which messages are not delivered, or not in time, are alive.
#[derive(Debug)]
pub(crate) struct Liveness(watch::Sender<Option<Error>>);

impl Default for Liveness {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Liveness {
    /// It is not, and this is why.
    pub(crate) fn stop(&self, why: String) {
        tracing::error!(why, "delivery stopped");
        self.0.send_if_modified(|state| {
            let first = state.is_none();
            state.get_or_insert(Error::Stopped(why));
            first
        });
    }

    /// Starts a task that has to run as long as this Duly does: if it ends, delivery counts as stopped.
    pub(crate) fn supervise(
        self: Arc<Self>,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let supervised = async move {
            match caught(work).await {
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
            // The sender is borrowed here: it cannot be gone.
            let _ = state.changed().await;
        }
    }
}

/// What the store last said of itself.
#[derive(Debug, Default)]
pub(crate) struct Checks(Arc<Mutex<Checked>>);

#[derive(Debug, Default)]
struct Checked {
    last: Option<Answer>,
    /// The question under way: who comes meanwhile waits for its answer.
    asking: Option<watch::Receiver<Option<store::Health>>>,
}

#[derive(Debug)]
struct Answer {
    at: Monotonic,
    health: store::Health,
    /// How many calls had failed when it was asked for.
    failures: u64,
}

impl Answer {
    fn is_fresh(&self, now: Monotonic, failures: u64, is_far: bool) -> bool {
        let age = now.since(self.at);
        if self.health.whole().is_err() {
            return age < FAILING_FOR;
        }
        // A call that failed since may be the first to know.
        self.failures == failures && age < if is_far { GOOD_FOR_FAR } else { GOOD_FOR }
    }
}

impl Checks {
    async fn ask(&self, store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, failures: u64) -> store::Health {
        let mut asking = {
            let mut checked = lock(&self.0);
            let (now, is_far) = (clock.now().mono(), store.durability().is_elsewhere());
            if let Some(last) = checked.last.as_ref().filter(|last| last.is_fresh(now, failures, is_far)) {
                return last.health.clone();
            }
            match &checked.asking {
                Some(asking) => asking.clone(),
                None => {
                    let (answer, asking) = watch::channel(None);
                    checked.asking = Some(asking.clone());
                    // A task of its own: whoever asked first may go away, and others wait for the answer.
                    tokio::spawn(ask(self.0.clone(), store.clone(), clock.clone(), failures, answer));
                    asking
                }
            }
        };
        match asking.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(health)) => health.clone(),
            _ => store::Health::failing(unanswered("the runtime is stopping")),
        }
    }
}

async fn ask(
    checked: Arc<Mutex<Checked>>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    failures: u64,
    answer: watch::Sender<Option<store::Health>>,
) {
    let end = clock.now().mono().saturating_add(ANSWER_WITHIN);
    let health = tokio::select! {
        biased;
        said = caught(store.health()) => said.unwrap_or_else(|panic| store::Health::failing(unanswered(&panic))),
        () = clock.sleep_until(end) => {
            store::Health::failing(unanswered(&format!("no answer within {ANSWER_WITHIN:?}")))
        }
    };
    let mut checked = lock(&checked);
    checked.last = Some(Answer { at: clock.now().mono(), health: health.clone(), failures });
    checked.asking = None;
    answer.send_replace(Some(health));
}

fn unanswered(why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("the store does not say how it is: {why}"))
}

fn lock(checked: &Mutex<Checked>) -> MutexGuard<'_, Checked> {
    checked.lock().unwrap_or_else(PoisonError::into_inner)
}
