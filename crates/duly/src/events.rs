//! Events: what happens to messages and lanes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use duly_core::{
    DeadReason, Lane, MessageId, Now, Outcome, Timestamp, Topic,
    store::{Settlement, StoreError},
};
use tokio::sync::{
    broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    watch,
};

use crate::{
    counters::{Counters, LaneCounters, add},
    store_monitor::{StoreCall, StoreMonitor, is_failure},
};

/// Events that wait for a slow subscriber; it loses older ones and can ask how many.
const EVENTS_MAX: usize = 4_096;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message was accepted.
    #[non_exhaustive]
    Accepted {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
        /// When it is due.
        due: Timestamp,
    },
    /// A message was delivered.
    #[non_exhaustive]
    Delivered {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
        /// The attempt that succeeded.
        attempt: u32,
        /// How long after its ready time the attempt began.
        lateness: Duration,
    },
    /// An attempt failed and will be retried.
    #[non_exhaustive]
    Failed {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
        /// The attempt.
        attempt: u32,
        /// The kind of failure.
        outcome: Outcome,
        /// The error text.
        detail: String,
        /// When the next attempt begins.
        retry_at: Timestamp,
    },
    /// A message became a dead letter.
    #[non_exhaustive]
    Dead {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
        /// The reason.
        reason: DeadReason,
    },
    /// A message was cancelled.
    #[non_exhaustive]
    Cancelled {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
    },
    /// A message has another due time.
    #[non_exhaustive]
    Rescheduled {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
        /// When it is due now.
        due: Timestamp,
    },
    /// A dead letter is pending again, due now.
    #[non_exhaustive]
    Replayed {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
    },
    /// A dead letter was deleted.
    #[non_exhaustive]
    Purged {
        /// The message.
        id: MessageId,
        /// Its lane.
        lane: Lane,
    },
    /// An operator paused a lane.
    #[non_exhaustive]
    Paused {
        /// The lane.
        lane: Lane,
    },
    /// An operator resumed a lane.
    #[non_exhaustive]
    Resumed {
        /// The lane.
        lane: Lane,
    },
    /// The sink of a lane is unreachable; its messages wait.
    #[non_exhaustive]
    SinkUnreachable {
        /// The lane.
        lane: Lane,
        /// The error of the target.
        detail: String,
    },
    /// The sink of a lane has recovered.
    #[non_exhaustive]
    SinkRecovered {
        /// The lane.
        lane: Lane,
    },
    /// A destination of a sink is silent, full or forbidden: its messages wait, others go on.
    #[non_exhaustive]
    DestinationUnreachable {
        /// The lane.
        lane: Lane,
        /// The destination, as its sink names it.
        destination: String,
        /// The error of the target.
        detail: String,
    },
    /// A destination has recovered.
    #[non_exhaustive]
    DestinationRecovered {
        /// The lane.
        lane: Lane,
        /// The destination, as its sink names it.
        destination: String,
    },
    /// Leases ended before their messages were settled: the messages are delivered again.
    #[non_exhaustive]
    LeasesLost {
        /// The number of leases.
        count: usize,
    },
    /// Calls of the store fail and are repeated.
    #[non_exhaustive]
    StoreFailing {
        /// Failures in a row.
        times: u32,
    },
    /// Wall time jumped.
    #[non_exhaustive]
    ClockJumped {
        /// Microseconds; negative is backwards.
        by_us: i64,
    },
}

/// A subscription to events. It never slows Duly: events that it does not read in time are lost and counted.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    over: watch::Receiver<bool>,
    missed: u64,
    /// Events that all subscribers missed.
    missed_total: Arc<AtomicU64>,
}

impl Events {
    /// The next event; `None` after a shutdown, once all earlier events were returned. Cancel safety: dropped midway,
    /// no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                biased;
                received = self.receiver.recv() => received,
                _ = self.over.wait_for(|over| *over) => match self.receiver.try_recv() {
                    Ok(event) => Ok(event),
                    Err(TryRecvError::Lagged(count)) => Err(RecvError::Lagged(count)),
                    Err(TryRecvError::Empty | TryRecvError::Closed) => Err(RecvError::Closed),
                },
            };
            match received {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(count)) => {
                    self.missed += count;
                    self.missed_total.fetch_add(count, Relaxed);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Events that this subscriber missed.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// Publishes events to subscribers, and counts them.
#[derive(Debug)]
pub(crate) struct EventBus {
    sender: broadcast::Sender<Event>,
    over: watch::Sender<bool>,
    pub(crate) counters: Counters,
    pub(crate) monitor: StoreMonitor,
}

impl EventBus {
    pub(crate) fn watching(topics: impl IntoIterator<Item = Topic>) -> Self {
        let (sender, counters) = (broadcast::channel(EVENTS_MAX).0, Counters::watching(topics));
        Self { sender, over: watch::Sender::new(false), counters, monitor: StoreMonitor::default() }
    }

    pub(crate) fn subscribe(&self) -> Events {
        let missed_total = self.counters.engine.events_missed.clone();
        Events { receiver: self.sender.subscribe(), over: self.over.subscribe(), missed: 0, missed_total }
    }

    /// Ends all subscriptions.
    pub(crate) fn close(&self) {
        self.over.send_replace(true);
    }

    /// Whether there is a subscriber: if not, the event need not be built.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn publish(&self, event: Event) {
        // There may be no subscriber.
        let _ = self.sender.send(event);
    }

    /// Counts and publishes the settlement of a claim.
    pub(crate) fn settled(
        &self,
        lane: &LaneCounters,
        message: &duly_core::StoredMessage,
        attempt: u32,
        lateness: Duration,
        settlement: &Settlement,
    ) {
        self.counters.settled(lane, &message.topic, settlement);
        if !self.has_subscribers() {
            return;
        }
        let (id, lane) = (message.id.clone(), message.lane());
        self.publish(match settlement {
            Settlement::Delivered { .. } => Event::Delivered { id, lane, attempt, lateness },
            Settlement::Retry { at, attempt: tried } => {
                let (outcome, detail) = (tried.outcome, tried.detail.clone());
                Event::Failed { id, lane, attempt, outcome, detail, retry_at: *at }
            }
            Settlement::Dead { reason, .. } => Event::Dead { id, lane, reason: *reason },
            Settlement::Release | Settlement::Defer { .. } => return,
        });
    }

    /// Counts and publishes an in-store delivery.
    pub(crate) fn delivered_in_store(
        &self,
        (lane, counters): (&Lane, &LaneCounters),
        message: duly_core::InStoreMessage,
        late_us: u64,
    ) {
        self.counters.began(counters, &message.topic, late_us);
        self.counters.settled(counters, &message.topic, &Settlement::Delivered { receipt: None });
        if self.has_subscribers() {
            let (lane, lateness) = (lane.clone(), Duration::from_micros(late_us));
            self.publish(Event::Delivered { id: message.id, lane, attempt: 1, lateness });
        }
    }

    /// Records the result of a call of the store at `now`. A limit that is reached is no failure.
    pub(crate) fn observe<T>(
        &self,
        call: StoreCall<'_>,
        now: Now,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &result {
            Ok(_) => self.monitor.record_success(call, now.mono()),
            Err(error) if is_failure(error) => {
                add(&self.counters.engine.store_failures, 1);
                self.monitor.record_failure(call, now.mono(), error);
            }
            Err(_) => {}
        }
        result
    }
}
