//! Calls of the handler: limits, panics, and the outcome of each entry.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use redis_link::Link;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::{
    Filter,
    callbacks::Callbacks,
    handler::{CallOutcome, Handler, HandlerOutcome},
    in_flight::InFlight,
};
use crate::{
    EntryId, Settings, clock,
    entry::{DULY_GROUP, Raw},
    group::{ClaimedEntry, Lane},
    handler_scope,
    meter::Meter,
};

/// Handled entries to acknowledge. `None` is the last item.
pub(super) type Acks = Option<(Arc<Lane>, Vec<String>)>;

/// Hands entries to the handler and settles them. All tasks of a listener share one.
pub(super) struct Processor {
    pub(super) settings: Settings,
    pub(super) target: HandlerTarget,
    pub(super) callbacks: Callbacks,
    pub(super) meter: Meter,
    /// For commands that do not block.
    pub(super) link: Link,
    /// The streams that are read, most urgent first. Lanes may be added.
    pub(super) lanes: RwLock<Vec<Arc<Lane>>>,
    /// One permit per handler call that may run.
    pub(super) permits: Arc<Semaphore>,
    pub(super) in_flight: InFlight,
    pub(super) acks: mpsc::UnboundedSender<Acks>,
    /// Wakes the retrier: an entry may be due sooner than it knows.
    pub(super) retry_scheduled: Notify,
    /// Whether an entry was abandoned without being settled. In an ordered group it is handled before later reads.
    pub(super) has_unsettled: AtomicBool,
    pub(super) attempt_ids: AttemptIds,
    pub(super) stop: watch::Receiver<bool>,
}

/// The handler and what decides whether it is called.
pub(super) struct HandlerTarget {
    /// The `Streams` that the handler belongs to.
    pub(super) streams: u64,
    pub(super) handler: Handler,
    pub(super) filter: Option<Filter>,
}

/// Ids of attempts: a random prefix and a counter, so that no other process has the same.
pub(super) struct AttemptIds {
    prefix: u64,
    next: AtomicU64,
}

impl AttemptIds {
    pub(super) fn new() -> Self {
        Self { prefix: clock::random_u64(), next: AtomicU64::new(0) }
    }
}

/// The result of handling an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Nothing is left to do here.
    Settled,
    /// Redis did not confirm the outcome: the entry is pending as before, and in flight nowhere.
    Unsettled,
    /// It is retried after this wait.
    RetryAfter(Duration),
}

/// How an entry is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// While other calls run.
    Shared,
    /// As a suspect: no other call runs.
    Alone,
}

/// One attempt to handle entries.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) isolation: Isolation,
    /// Unique over all processes, so that a report that is repeated counts once.
    pub(super) id: String,
}

impl Processor {
    pub(super) fn new_attempt(&self, isolation: Isolation) -> Attempt {
        let serial = self.attempt_ids.next.fetch_add(1, Ordering::Relaxed);
        Attempt { isolation, id: format!("{:016x}-{serial}", self.attempt_ids.prefix) }
    }

    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Handler calls that may run at the same time.
    pub(super) fn permits_max(&self) -> u32 {
        u32::try_from(self.settings.concurrency).unwrap_or(u32::MAX)
    }

    /// Waits for the permit of one call. Returns `None` when the listener stops.
    pub(super) async fn acquire_permit(
        &self,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => None,
            permit = self.permits.clone().acquire_owned() => permit.ok(),
        }
    }

    /// Handles entries on a task of its own, which holds `permit` until it ends.
    pub(super) fn spawn(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        entries: Vec<ClaimedEntry>,
        permit: OwnedSemaphorePermit,
    ) {
        let (this, lane) = (self.clone(), lane.clone());
        tokio::spawn(async move {
            let ids: Vec<EntryId> = entries.iter().map(|entry| entry.raw.id.clone()).collect();
            let attempt = this.new_attempt(Isolation::Shared);
            let run = AssertUnwindSafe(this.run(&lane, entries, &attempt)).catch_unwind();
            if let Err(panic) = run.await {
                // Not the handler's panic. Entries left in flight would never be reclaimed.
                tracing::error!(topic = lane.topic, panic = panic_message(&*panic), "settle task panicked");
                this.abandon(&lane, ids.iter().map(EntryId::as_str));
            }
            drop(permit);
        });
    }

    /// Calls the handler once and settles the entries. Returns the disposition of the last one that was not done.
    pub(super) async fn run(
        &self,
        lane: &Arc<Lane>,
        entries: Vec<ClaimedEntry>,
        attempt: &Attempt,
    ) -> Disposition {
        let mut disposition = Disposition::Settled;
        let (mut wanted, mut done) = (Vec::with_capacity(entries.len()), Vec::new());
        for entry in entries {
            match catch_unwind(AssertUnwindSafe(|| self.target.wants(&entry.raw, &self.settings.group))) {
                Ok(true) => wanted.push(entry),
                Ok(false) => done.push(entry.raw.id.as_str().to_owned()),
                Err(panic) => {
                    let outcome =
                        HandlerOutcome::failed(format!("the filter panicked: {}", panic_message(&*panic)));
                    disposition =
                        self.record_failure(lane, &entry.raw.id, entry.failures, outcome, attempt).await;
                }
            }
        }
        let filtered = done.len();
        if !wanted.is_empty() {
            let known: Vec<_> = wanted.iter().map(|entry| (entry.raw.id.clone(), entry.failures)).collect();
            let began = clock::instant();
            match self.call_handler(wanted).await {
                CallOutcome::PerEntry(outcomes) => {
                    for ((id, failures), outcome) in known.into_iter().zip(outcomes) {
                        match outcome {
                            HandlerOutcome::Done => done.push(id.as_str().to_owned()),
                            outcome => {
                                disposition =
                                    self.record_failure(lane, &id, failures, outcome, attempt).await;
                            }
                        }
                    }
                }
                CallOutcome::Failed(why) => {
                    disposition = self.record_batch_failure(lane, known, why, attempt).await;
                }
            }
            self.meter.record_handled(done.len() - filtered, clock::instant() - began);
        }
        if done.is_empty() {
            return disposition;
        }
        match attempt.isolation {
            // If the acker has ended, the listener has, and the entries are delivered again.
            Isolation::Shared => drop(self.acks.send(Some((lane.clone(), done)))),
            // At once: if the process died before the ack, the suspect would be blamed for it.
            Isolation::Alone => self.acknowledge(lane, &done).await,
        }
        disposition
    }

    async fn call_handler(&self, entries: Vec<ClaimedEntry>) -> CallOutcome {
        let raws = entries.into_iter().map(|entry| entry.raw).collect();
        let call = self.target.handler.call.clone();
        let scoped = handler_scope::enter(self.target.streams, async move { call(raws).await });
        let limit = self.settings.processing_timeout;
        match tokio::time::timeout(limit, AssertUnwindSafe(scoped).catch_unwind()).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                CallOutcome::Failed(format!("the handler panicked: {}", panic_message(&*panic)))
            }
            Err(_) => CallOutcome::Failed(format!("the handler took longer than {limit:?} and was ended")),
        }
    }
}

impl HandlerTarget {
    /// Whether the handler is called with an entry. One that was replayed for another group, or that the filter does not match, is
    /// acknowledged without a call.
    fn wants(&self, raw: &Raw, group: &str) -> bool {
        let is_for_group = raw.field(DULY_GROUP).is_none_or(|for_group| for_group == group.as_bytes());
        is_for_group && self.filter.as_ref().is_none_or(|filter| filter(raw))
    }
}

/// The text that a panic was raised with.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
