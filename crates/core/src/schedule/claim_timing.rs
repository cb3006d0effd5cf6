//! When a lane claims: what it knows of the next due time, the claim in progress, and the waits after a failure.

use std::time::Duration;

use crate::{Monotonic, Now, Timestamp};

/// A wake-up further away than this is set in steps, so that a slewing wall clock is followed.
const WAKE_AHEAD_MAX: Duration = Duration::from_secs(10);
/// The pause after a claim that gave nothing although its lower bound had passed: doubles up to the maximum. Not the retry policy.
const EMPTY_PAUSE_MIN: Duration = Duration::from_millis(1);
const EMPTY_PAUSE_MAX: Duration = Duration::from_millis(512);

/// Whether to claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimTime {
    /// A claim is in progress, or nothing is known to be due.
    Never,
    /// Claim no earlier than this.
    At(Monotonic),
    /// Something may be due.
    Now,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimAnswer {
    /// Messages that came, or were delivered in the store.
    pub(super) count: usize,
    /// Lower bound of the next due time.
    pub(super) next: Option<Timestamp>,
    /// More messages may be due already.
    pub(super) may_have_more: bool,
}

/// The state of a lane's claims. At most one claim is in progress.
#[derive(Debug)]
pub(super) struct ClaimTiming {
    /// Lower bound of the next due time, from hints, claims and sweeps.
    next_due_lower_bound: Option<Timestamp>,
    /// A hint that came during the claim in progress, which may not have seen it.
    pending_hint: Option<Timestamp>,
    /// No claim before then, after a failure or an answer without messages.
    not_before: Monotonic,
    /// The limit of the claim in progress.
    in_progress: Option<usize>,
    failures: u32,
    empty_answers: u32,
    /// The wake-up that is set.
    wake_at: Option<Monotonic>,
}

impl ClaimTiming {
    /// Messages may wait from before: the first claim is due at once.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            next_due_lower_bound: Some(now),
            pending_hint: None,
            not_before: Monotonic::default(),
            in_progress: None,
            failures: 0,
            empty_answers: 0,
            wake_at: None,
        }
    }

    pub(super) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Whether something may be due by `time`.
    pub(super) fn is_due_by(&self, time: Timestamp) -> bool {
        self.next_due_lower_bound.is_some_and(|due| due <= time)
    }

    /// Something is due at `due`. Returns whether that is earlier than what was known.
    pub(super) fn hint(&mut self, due: Timestamp) -> bool {
        if self.in_progress.is_some() {
            self.pending_hint = earliest(self.pending_hint, Some(due));
            return false;
        }
        let is_earlier = self.next_due_lower_bound.is_none_or(|known| due < known);
        self.next_due_lower_bound = earliest(self.next_due_lower_bound, Some(due));
        is_earlier
    }

    pub(super) fn time(&self, now: Now) -> ClaimTime {
        match (self.in_progress, self.next_due_lower_bound) {
            (Some(_), _) | (None, None) => ClaimTime::Never,
            (None, Some(due)) if due > now.wall() => ClaimTime::At(now.mono_at(due)),
            _ if self.not_before > now.mono() => ClaimTime::At(self.not_before),
            _ => ClaimTime::Now,
        }
    }

    pub(super) fn begin(&mut self, limit: usize) {
        self.in_progress = Some(limit);
    }

    /// The limit of the claim in progress.
    pub(super) fn limit(&self) -> usize {
        self.in_progress.unwrap_or_default()
    }

    /// The claim in progress was answered.
    pub(super) fn answered(&mut self, answer: ClaimAnswer, now: Now) {
        let ClaimAnswer { count, next, may_have_more } = answer;
        self.in_progress = None;
        self.failures = 0;
        if count == 0 && next.is_some_and(|next| next <= now.wall()) {
            let pause = EMPTY_PAUSE_MIN.saturating_mul(1 << self.empty_answers.min(10)).min(EMPTY_PAUSE_MAX);
            self.empty_answers += 1;
            self.not_before = now.mono().saturating_add(pause);
        } else {
            self.empty_answers = 0;
        }
        let more = may_have_more.then(|| now.wall());
        self.next_due_lower_bound = earliest(earliest(next, self.pending_hint.take()), more);
    }

    /// The claim in progress failed. Returns how many failed in a row.
    pub(super) fn failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        self.in_progress = None;
        self.next_due_lower_bound = earliest(self.next_due_lower_bound, self.pending_hint.take());
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(wait(self.failures));
        self.failures
    }

    /// Sets the wake-up at `at`, or a step on the way there. Returns the time to set a timer for, unless an earlier one is set.
    pub(super) fn arm(&mut self, at: Monotonic, now: Monotonic) -> Option<Monotonic> {
        let at = at.min(now.saturating_add(WAKE_AHEAD_MAX));
        let is_first = self.wake_at.is_none_or(|known| at < known);
        is_first.then(|| *self.wake_at.insert(at))
    }

    /// A timer fired. Returns whether it was the wake-up that is set.
    pub(super) fn disarm(&mut self, at: Monotonic) -> bool {
        let is_set = self.wake_at == Some(at);
        if is_set {
            self.wake_at = None;
        }
        is_set
    }
}

fn earliest(one: Option<Timestamp>, two: Option<Timestamp>) -> Option<Timestamp> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now::new(ms * 1_000, Monotonic::from_micros(ms * 1_000))
    }

    fn answer(count: usize, next_ms: Option<u64>) -> ClaimAnswer {
        ClaimAnswer { count, next: next_ms.map(Timestamp::from_millis), may_have_more: false }
    }

    #[test]
    fn a_hint_during_a_claim_survives_the_answer() {
        let mut timing = ClaimTiming::new(at(0).wall());
        timing.begin(10);
        assert!(!timing.hint(Timestamp::from_millis(5)));
        timing.answered(answer(1, Some(100)), at(1));
        assert!(timing.is_due_by(Timestamp::from_millis(5)));
        assert_eq!(timing.time(at(5)), ClaimTime::Now);
    }

    #[test]
    fn answers_without_messages_are_followed_by_longer_and_longer_waits() {
        let mut timing = ClaimTiming::new(at(0).wall());
        let mut waits = Vec::new();
        for _ in 0..12 {
            timing.begin(1);
            timing.answered(answer(0, Some(0)), at(0));
            let ClaimTime::At(time) = timing.time(at(0)) else { panic!("no wait") };
            waits.push(time.since(at(0).mono()));
        }
        assert_eq!((waits[0], waits[1], waits[11]), (EMPTY_PAUSE_MIN, EMPTY_PAUSE_MIN * 2, EMPTY_PAUSE_MAX));
    }

    #[test]
    fn a_later_wake_up_does_not_replace_an_earlier_one() {
        let mut timing = ClaimTiming::new(at(0).wall());
        let (soon, later) = (at(5).mono(), at(9).mono());
        assert_eq!(timing.arm(soon, at(0).mono()), Some(soon));
        assert_eq!(timing.arm(later, at(0).mono()), None);
        assert!(!timing.disarm(later) && timing.disarm(soon));
    }
}
