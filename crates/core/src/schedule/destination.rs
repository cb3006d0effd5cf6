//! One destination of a lane: its slots, its breaker and its pace.

use std::{collections::VecDeque, time::Duration};

use super::{
    Job,
    breaker::{Allow, Breaker},
};
use crate::{Monotonic, Outcome};

/// How long a claimed message waits for a slot of its destination before it is deferred.
pub(super) const PARKED_TIME_MAX: Duration = Duration::from_secs(1);
/// A destination that uses its whole share and has given no result for this long is slow, unless its answers are known to
/// take longer. Its messages leave the lane then: parked ones take the room of others.
const STALLED_AFTER_MIN: Duration = Duration::from_millis(250);

/// When a destination without a result is stalled: after twice the time of its recent answers, within bounds.
fn stalled_after(answer_time: Option<Duration>) -> Duration {
    (answer_time.unwrap_or_default() * 2).clamp(STALLED_AFTER_MIN, PARKED_TIME_MAX)
}

/// After a message waited in vain, others without a slot are deferred at once for this long: otherwise each claim would
/// fill the lane with messages that cannot be sent.
const SLOW_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Destination {
    pub(super) under_way: usize,
    /// Whether a trial is running.
    pub(super) is_tried: bool,
    pub(super) parked: VecDeque<(Monotonic, Job)>,
    pub(super) breaker: Breaker,
    /// Why the breaker is open: the result of the last attempt.
    pub(super) cause: Option<(Outcome, String)>,
    /// Recent messages without an answer, each once. Cleared by any answer.
    pub(super) silent: Vec<u64>,
    /// Recent messages that it denied, each once. Cleared when it takes one, or refuses it for what it is.
    pub(super) denied: Vec<u64>,
    /// When it last gave a result, or got a message while it had none.
    pub(super) progress_at: Monotonic,
    /// How long it may give no result while it uses its whole share.
    stalled_after: Duration,
    /// It is slow because it gave no result for that long.
    is_stalled: bool,
    /// When the last deferred message comes back.
    pub(super) deferred_to: Monotonic,
    /// The destination was too slow: until then, messages without a slot are deferred at once.
    slow_until: Monotonic,
    pub(super) used: u64,
}

impl Destination {
    /// A destination whose recent answers took `answer_time`.
    pub(super) fn new(answer_time: Option<Duration>) -> Self {
        Self {
            under_way: 0,
            is_tried: false,
            parked: VecDeque::new(),
            breaker: Breaker::new(),
            cause: None,
            silent: Vec::new(),
            denied: Vec::new(),
            progress_at: Monotonic::default(),
            stalled_after: stalled_after(answer_time),
            is_stalled: false,
            deferred_to: Monotonic::default(),
            slow_until: Monotonic::default(),
            used: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.parked.is_empty()
    }

    /// When it is stalled, if it gives no result before.
    fn stalled_at(&self) -> Monotonic {
        self.progress_at.saturating_add(self.stalled_after)
    }

    /// When the first parked message has waited for too long, if nothing happens before.
    pub(super) fn parked_until(&self) -> Option<Monotonic> {
        let (since, _) = self.parked.front()?;
        Some(since.saturating_add(PARKED_TIME_MAX).min(self.stalled_at()))
    }

    /// Whether a message without a slot is deferred at once.
    pub(super) fn is_slow(&mut self, now: Monotonic) -> bool {
        if self.stalled_at() <= now {
            self.be_slow(now);
        }
        now < self.slow_until
    }

    /// Its messages waited in vain: it is slow from now on.
    pub(super) fn be_slow(&mut self, now: Monotonic) {
        self.slow_until = now.saturating_add(SLOW_TIME);
        self.is_stalled = self.stalled_at() <= now;
    }

    /// An answer took `took`, and recent ones `answer_time`. One that comes soon enough shows that it had not stalled.
    pub(super) fn answered(&mut self, took: Duration, answer_time: Duration) {
        self.stalled_after = stalled_after(Some(answer_time));
        if self.is_stalled && took < PARKED_TIME_MAX {
            self.is_stalled = false;
            self.slow_until = Monotonic::default();
            self.deferred_to = Monotonic::default();
        }
    }

    /// Whether it equals a new entry.
    pub(super) fn is_default(&self) -> bool {
        self.is_idle()
            && self.silent.is_empty()
            && self.denied.is_empty()
            && self.breaker.allows() == Allow::All
    }
}
