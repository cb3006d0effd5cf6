//! One destination of a lane: its slots, its breaker and its pace.

use std::{collections::VecDeque, time::Duration};

use super::{
    Job,
    breaker::{Allow, Breaker},
};
use crate::{Monotonic, Outcome};

/// How long a claimed message waits for a slot of its destination before it is deferred.
pub(super) const PARKED_TIME_MAX: Duration = Duration::from_secs(1);
/// A destination that uses its whole share and has given no result for this long is slow. Its messages leave the lane
/// then: parked ones take the room of others. Longer than the answers of a distant target take.
pub(super) const STALLED_AFTER: Duration = Duration::from_millis(250);

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
    /// When it last gave a result, or got a message while it had none.
    pub(super) progress_at: Monotonic,
    /// When the last deferred message comes back.
    pub(super) deferred_to: Monotonic,
    /// The destination was too slow: until then, messages without a slot are deferred at once.
    pub(super) slow_until: Monotonic,
    pub(super) used: u64,
}

impl Destination {
    pub(super) fn new() -> Self {
        Self {
            under_way: 0,
            is_tried: false,
            parked: VecDeque::new(),
            breaker: Breaker::new(),
            cause: None,
            silent: Vec::new(),
            progress_at: Monotonic::default(),
            deferred_to: Monotonic::default(),
            slow_until: Monotonic::default(),
            used: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0 && self.parked.is_empty()
    }

    /// When the first parked message has waited for too long, if nothing happens before.
    pub(super) fn parked_until(&self) -> Option<Monotonic> {
        let (since, _) = self.parked.front()?;
        let stalled_at = self.progress_at.saturating_add(STALLED_AFTER);
        Some(since.saturating_add(PARKED_TIME_MAX).min(stalled_at))
    }

    /// Whether it equals a new entry.
    pub(super) fn is_default(&self) -> bool {
        self.is_idle() && self.silent.is_empty() && self.breaker.allows() == Allow::All
    }
}
