//! Newcomers of a lane: destinations that have not answered of late, all together.
//!
//! A share of the slots bounds one silent destination, not many of them: with a subject or a routing key per message,
//! each holds one slot. Together they leave a part of the slots to destinations that answer.

use std::time::Duration;

use super::{answers::typical, destination::Destination};
use crate::Monotonic;

/// Newcomers leave one slot of this many to regular destinations.
const REGULAR_PART: usize = 4;
/// A lane has regular destinations if it claimed a message for one within this time. Without any, newcomers may use all
/// slots.
const REGULAR_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Newcomers {
    /// They share their slots, and are slow together, as if they were one destination.
    pub(super) all: Destination,
    answer_time: Option<Duration>,
    /// When a message for a regular destination was last claimed.
    regular_at: Option<Monotonic>,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self { all: Destination::new(None), answer_time: None, regular_at: None }
    }
}

impl Newcomers {
    /// A message for a regular destination was claimed.
    pub(super) fn regular_claimed(&mut self, now: Monotonic) {
        self.regular_at = Some(now);
    }

    /// Whether they use all of the lane's `slots` that they may.
    pub(super) fn is_full(&self, slots: usize, now: Monotonic) -> bool {
        let has_regular = self.regular_at.is_some_and(|at| now.since(at) < REGULAR_WINDOW);
        has_regular && self.all.under_way >= slots - slots / REGULAR_PART
    }

    /// A message to one of them was sent.
    pub(super) fn sent(&mut self, now: Monotonic) {
        if self.all.under_way == 0 {
            self.all.progress_at = now;
        }
        self.all.under_way += 1;
    }

    /// One of them took a message, `took` after it was sent.
    pub(super) fn delivered(&mut self, took: Duration) {
        let answer_time = typical(self.answer_time, took);
        self.answer_time = Some(answer_time);
        self.all.answered(took, answer_time);
    }

    /// A message to one of them has a result. Silence is no progress: some of many silent ones end all the time.
    pub(super) fn ended(&mut self, has_answered: bool, now: Monotonic) {
        self.all.under_way = self.all.under_way.saturating_sub(1);
        if has_answered {
            self.all.progress_at = now;
        }
    }
}
