//! What happens, told while it happens.

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
    observed::{Call, Observed, is_failure},
    tally::{LaneTally, Tally, add},
};

/// So many events wait for a slow listener; then it loses the oldest, and hears how many.
const KEPT: usize = 4_096;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message was accepted.
    Accepted {
        /// Which.
        id: MessageId,
        /// Where it travels.
        lane: Lane,
        /// When it is due.
        due: Timestamp,
    },
    /// A message was delivered.
    Delivered {
        /// Which.
        id: MessageId,
        /// Where it travelled.
        lane: Lane,
        /// At which try.
        attempt: u32,
        /// How long after it was ready the try began.
        lateness: Duration,
    },
    /// A try failed; there will be another.
    Failed {
        /// Which.
        id: MessageId,
        /// Where it travels.
        lane: Lane,
        /// Which try.
        attempt: u32,
        /// Why, by kind.
        outcome: Outcome,
        /// Why, in words.
        detail: String,
        /// When the next try is.
        retry_at: Timestamp,
    },
    /// A message was given up.
    Dead {
        /// Which.
        id: MessageId,
        /// Where it travelled.
        lane: Lane,
        /// Why.
        reason: DeadReason,
    },
    /// A message was cancelled.
    Cancelled {
        /// Which.
        id: MessageId,
    },
    /// A message has another due time.
    Rescheduled {
        /// Which.
        id: MessageId,
        /// Where it travels.
        lane: Lane,
        /// When it is due now.
        due: Timestamp,
    },
    /// A dead letter is pending again, due now.
    Replayed {
        /// Which.
        id: MessageId,
        /// Where it travels.
        lane: Lane,
    },
    /// A dead letter was forgotten for good.
    Purged {
        /// Which.
        id: MessageId,
    },
    /// An operator paused a lane.
    Paused {
        /// Which lane.
        lane: Lane,
    },
    /// An operator resumed a lane.
    Resumed {
        /// Which lane.
        lane: Lane,
    },
    /// The target of a lane is away; its messages wait.
    TargetAway {
        /// Which lane.
        lane: Lane,
        /// What the target said.
        detail: String,
    },
    /// The target of a lane is back.
    TargetBack {
        /// Which lane.
        lane: Lane,
    },
    /// A destination inside the target of a lane is silent, full or forbidden: its messages wait, the others go on.
    DestinationUnreachable {
        /// Which lane.
        lane: Lane,
        /// Which destination, as its sink names it.
        destination: String,
        /// What the target said.
        detail: String,
    },
    /// A destination takes messages again.
    DestinationRecovered {
        /// Which lane.
        lane: Lane,
        /// Which destination, as its sink names it.
        destination: String,
    },
    /// Leases ended while messages were being worked on: they come again.
    LeasesLost {
        /// How many.
        count: usize,
    },
    /// The store failed and is tried again.
    StoreFailing {
        /// How often in a row.
        times: u32,
    },
    /// Wall time stepped; negative: backwards.
    ClockJumped {
        /// By how many microseconds.
        by_us: i64,
    },
}

/// A listener's end. It never slows Duly: what it does not take in time is lost to it, and counted.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    over: watch::Receiver<bool>,
    missed: u64,
    /// What all listeners missed.
    missed_in_all: Arc<AtomicU64>,
}

impl Events {
    /// The next event; `None` once Duly is shut down and all that happened before was told. Cancel safety: dropped midway, no event is lost.
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
                    self.missed_in_all.fetch_add(count, Relaxed);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many events this listener was too slow for.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// Publishes events to subscribers, and counts them.
#[derive(Debug)]
pub(crate) struct EventBus {
    sender: broadcast::Sender<Event>,
    over: watch::Sender<bool>,
    pub(crate) tally: Tally,
    pub(crate) observed: Observed,
}

impl EventBus {
    pub(crate) fn watching(topics: impl IntoIterator<Item = Topic>) -> Self {
        let (sender, tally) = (broadcast::channel(KEPT).0, Tally::watching(topics));
        Self { sender, over: watch::Sender::new(false), tally, observed: Observed::default() }
    }

    pub(crate) fn subscribe(&self) -> Events {
        let missed_in_all = self.tally.events_missed.clone();
        Events { receiver: self.sender.subscribe(), over: self.over.subscribe(), missed: 0, missed_in_all }
    }

    /// Nothing happens any more.
    pub(crate) fn close(&self) {
        self.over.send_replace(true);
    }

    /// Whether there is a subscriber: if not, the event need not be built.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn publish(&self, event: Event) {
        // Nobody listening is no fault.
        let _ = self.sender.send(event);
    }

    /// A claim of `message` was settled: counts it and tells it.
    pub(crate) fn settled(
        &self,
        lane: &LaneTally,
        message: &duly_core::StoredMessage,
        attempt: u32,
        lateness: Duration,
        settlement: &Settlement,
    ) {
        self.tally.settled(lane, &message.topic, settlement);
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

    /// The store moved a message to the target of `lane` by itself: counts it and tells it.
    pub(crate) fn moved(
        &self,
        (lane, tally): (&Lane, &LaneTally),
        message: duly_core::InStoreMessage,
        late_us: u64,
    ) {
        self.tally.began(tally, &message.topic, late_us);
        self.tally.settled(tally, &message.topic, &Settlement::Delivered { receipt: None });
        if self.has_subscribers() {
            let (lane, lateness) = (lane.clone(), Duration::from_micros(late_us));
            self.publish(Event::Delivered { id: message.id, lane, attempt: 1, lateness });
        }
    }

    /// Takes note of how a call of the store ended at `now`, and counts its failures. A limit that is reached is none.
    pub(crate) fn observe<T>(
        &self,
        call: Call<'_>,
        now: Now,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &result {
            Ok(_) => self.observed.well(call, now.mono()),
            Err(error) if is_failure(error) => {
                add(&self.tally.store_failures, 1);
                self.observed.failed(call, now.mono(), error);
            }
            Err(_) => {}
        }
        result
    }
}
