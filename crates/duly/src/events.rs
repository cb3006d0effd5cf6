//! What happens, told while it happens; and the counts of it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use duly_core::{DeadReason, Lane, MessageId, Outcome, Timestamp, store::Verdict};
use tokio::sync::broadcast;

use crate::lateness::{Lateness, Quantiles};

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
    missed: u64,
}

impl Events {
    /// The next event; `None` once Duly is shut down.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(count)) => self.missed += count,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// How many events this listener was too slow for.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// The counts of what happened in this process since it started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Messages accepted.
    pub accepted: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Tries that failed and are followed by another.
    pub failed: u64,
    /// Messages given up.
    pub dead: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// How late tries began.
    pub lateness: Quantiles,
}

#[derive(Debug)]
pub(crate) struct Bell {
    sender: broadcast::Sender<Event>,
    accepted: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    cancelled: AtomicU64,
    pub(crate) lateness: Lateness,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            sender: broadcast::channel(KEPT).0,
            accepted: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            lateness: Lateness::default(),
        }
    }

    pub(crate) fn listen(&self) -> Events {
        Events { receiver: self.sender.subscribe(), missed: 0 }
    }

    /// Whether anybody listens: if not, the event need not even be built.
    pub(crate) fn heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn ring(&self, event: Event) {
        // Nobody listening is no fault.
        let _ = self.sender.send(event);
    }

    pub(crate) fn count(&self, what: Count) {
        match what {
            Count::Accepted => &self.accepted,
            Count::Delivered => &self.delivered,
            Count::Failed => &self.failed,
            Count::Dead => &self.dead,
            Count::Cancelled => &self.cancelled,
        }
        .fetch_add(1, Relaxed);
    }

    /// A claim of `message` was settled: counts it and tells it.
    pub(crate) fn settled(
        &self,
        message: &duly_core::Message,
        attempt: u32,
        lateness: Duration,
        verdict: &Verdict,
    ) {
        self.count(match verdict {
            Verdict::Delivered { .. } => Count::Delivered,
            Verdict::Retry { .. } => Count::Failed,
            Verdict::Dead { .. } => Count::Dead,
            Verdict::HandBack => return,
        });
        if !self.heard() {
            return;
        }
        let (id, lane) = (message.id.clone(), message.lane());
        self.ring(match verdict {
            Verdict::Delivered { .. } => Event::Delivered { id, lane, attempt, lateness },
            Verdict::Retry { at, attempt: tried } => {
                let (outcome, detail) = (tried.outcome, tried.detail.clone());
                Event::Failed { id, lane, attempt, outcome, detail, retry_at: *at }
            }
            Verdict::Dead { reason, .. } => Event::Dead { id, lane, reason: *reason },
            Verdict::HandBack => return,
        });
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            accepted: self.accepted.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            dead: self.dead.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            lateness: self.lateness.quantiles(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Accepted,
    Delivered,
    Failed,
    Dead,
    Cancelled,
}
