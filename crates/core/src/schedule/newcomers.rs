//! Newcomers of a lane: destinations that have not answered of late, all together.
//!
//! A share of the slots bounds one silent destination, not many of them: with a subject or a routing key per message,
//! each holds one slot. Together they leave a part of the slots to destinations that answer, while there are such or
//! while newcomers are silent.

use std::time::Duration;

use super::{answers::typical, destination::Destination};
use crate::Monotonic;

/// Newcomers leave one slot of this many to regular destinations.
const REGULAR_PART: usize = 4;
/// A lane has regular destinations if it claimed a message for one within this time. Without any, newcomers that answer
/// may use all slots.
const REGULAR_WINDOW: Duration = Duration::from_secs(60);
/// Newcomers are silent if so many more of their messages than answers were lost of late. Fewer may be the fault of a
/// message.
const UNANSWERED_MIN: usize = 3;
/// No more are counted, so that as many answers are enough to show that they are not silent any more.
const UNANSWERED_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Newcomers {
    /// They share their slots, and are slow together, as if they were one destination.
    pub(super) all: Destination,
    answer_time: Option<Duration>,
    /// When a message for a regular destination was last claimed.
    regular_at: Option<Monotonic>,
    /// Messages without an answer, less one for each answer since.
    unanswered: usize,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self { all: Destination::new(None), answer_time: None, regular_at: None, unanswered: 0 }
    }
}

impl Newcomers {
    /// A message for a regular destination was claimed.
    pub(super) fn regular_claimed(&mut self, now: Monotonic) {
        self.regular_at = Some(now);
    }

    /// Whether they use all of the lane's `slots` that they may.
    pub(super) fn is_full(&mut self, slots: usize, now: Monotonic) -> bool {
        self.all.under_way >= share(slots) && (self.has_regular(now) || self.is_silent(now))
    }

    fn has_regular(&self, now: Monotonic) -> bool {
        self.regular_at.is_some_and(|at| now.since(at) < REGULAR_WINDOW)
    }

    /// Lost answers count until others come: after a quiet time, a silent crowd must not take all slots again.
    fn is_silent(&mut self, now: Monotonic) -> bool {
        self.unanswered >= UNANSWERED_MIN || self.all.is_slow(now)
    }

    /// A message to one of them was sent, in a lane with `slots`.
    pub(super) fn sent(&mut self, slots: usize, now: Monotonic) {
        self.all.under_way += 1;
        // One that is silent beside a burst to others must not make these slow at once.
        let is_first_full = self.all.under_way == share(slots) && self.unanswered < UNANSWERED_MIN;
        if self.all.under_way == 1 || is_first_full {
            self.all.progress_at = now;
        }
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
            self.unanswered = self.unanswered.saturating_sub(1);
        } else {
            self.unanswered = UNANSWERED_MAX.min(self.unanswered + 1);
        }
    }
}

/// How many of `slots` newcomers may use beside regular destinations.
fn share(slots: usize) -> usize {
    slots - slots / REGULAR_PART
}
