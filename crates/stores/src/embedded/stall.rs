//! Work that does not go on: a disk that hangs answers nothing, not even with an error.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use duly_core::Monotonic;

use super::index::Position;

/// A frame of the journal that is under way for longer than this counts as stalled: as long as a call of a store may have no result.
pub(super) const JOURNAL_STALLED_AFTER: Duration = Duration::from_secs(10);
/// The same for a step of background work. One of them writes and syncs a whole segment or run, which takes a slow disk many seconds,
/// and no caller waits for it before it is late by far.
pub(super) const BACKGROUND_STALLED_AFTER: Duration = Duration::from_secs(30);

/// Tracks since when the current step of some work is under way. The store reads no clock: a step counts from the first call that sees it.
#[derive(Debug)]
struct StallWatch<S> {
    seen: Option<(S, Monotonic)>,
}

impl<S> Default for StallWatch<S> {
    fn default() -> Self {
        Self { seen: None }
    }
}

impl<S: PartialEq> StallWatch<S> {
    /// At `now` this step is under way, or none.
    fn observe(&mut self, step: Option<S>, now: Monotonic) {
        match step {
            Some(step) if self.seen.as_ref().is_some_and(|(seen, _)| *seen == step) => {}
            step => self.seen = step.map(|step| (step, now)),
        }
    }

    /// Whether `step`, which is still under way at `now`, has been for longer than `limit`.
    fn is_stalled(&self, step: Option<S>, now: Monotonic, limit: Duration) -> bool {
        let is_same = |(seen, _): &&(S, Monotonic)| step.is_some_and(|step| step == *seen);
        self.seen.as_ref().filter(is_same).is_some_and(|(_, since)| now.since(*since) > limit)
    }
}

/// Whether the journal and the background thread go on.
#[derive(Default)]
pub(super) struct Stalls {
    journal: StallWatch<Position>,
    background: StallWatch<u64>,
    steps: Arc<BackgroundSteps>,
}

impl Stalls {
    /// The steps of background work, to be counted by the thread that does it.
    pub(super) fn steps(&self) -> Arc<BackgroundSteps> {
        self.steps.clone()
    }

    /// At `now` the frame at `writing_at` is being written, or none.
    pub(super) fn observe(&mut self, writing_at: Option<Position>, now: Monotonic) {
        self.journal.observe(writing_at, now);
        self.background.observe(self.steps.current(), now);
    }

    pub(super) fn is_journal_stalled(&self, writing_at: Option<Position>, now: Monotonic) -> bool {
        self.journal.is_stalled(writing_at, now, JOURNAL_STALLED_AFTER)
    }

    pub(super) fn is_background_stalled(&self, now: Monotonic) -> bool {
        self.background.is_stalled(self.steps.current(), now, BACKGROUND_STALLED_AFTER)
    }
}

/// The steps of background work. A round may take long, a step of it does not.
#[derive(Debug, Default)]
pub(super) struct BackgroundSteps {
    is_in_round: AtomicBool,
    done: AtomicU64,
}

impl BackgroundSteps {
    /// Marks the begin of a round, until the guard is dropped.
    pub(super) fn begin_round(&self) -> RoundGuard<'_> {
        self.finish_step();
        self.is_in_round.store(true, Relaxed);
        RoundGuard(self)
    }

    /// A step is done, and another one begins.
    pub(super) fn finish_step(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// The step under way, by its number.
    fn current(&self) -> Option<u64> {
        self.is_in_round.load(Relaxed).then(|| self.done.load(Relaxed))
    }
}

/// A round of background work is under way.
pub(super) struct RoundGuard<'s>(&'s BackgroundSteps);

impl Drop for RoundGuard<'_> {
    fn drop(&mut self) {
        self.0.is_in_round.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_stalled_once_it_is_seen_for_too_long_and_no_longer_than_it_lasts() {
        let at = |ms: u64| Monotonic::from_micros(ms * 1_000);
        let mut watch = StallWatch::default();
        let is_stalled =
            |watch: &StallWatch<u64>, step, ms| watch.is_stalled(step, at(ms), Duration::from_secs(5));
        watch.observe(Some(1), at(0));
        watch.observe(Some(1), at(5_000));
        assert!(!is_stalled(&watch, Some(1), 5_000));
        assert!(is_stalled(&watch, Some(1), 5_001));
        assert!(!is_stalled(&watch, Some(2), 5_001), "the next step has begun");
        assert!(!is_stalled(&watch, None, 5_001), "the work is done");
        watch.observe(Some(2), at(60_000));
        assert!(!is_stalled(&watch, Some(2), 60_000), "it was not seen before");
        watch.observe(None, at(61_000));
        watch.observe(Some(2), at(70_000));
        assert!(!is_stalled(&watch, Some(2), 70_000));
    }

    #[test]
    fn a_long_round_of_many_steps_is_not_stalled() {
        let (steps, mut watch) = (BackgroundSteps::default(), StallWatch::default());
        assert_eq!(steps.current(), None);
        let round = steps.begin_round();
        for ms in (0..60_000).step_by(1_000) {
            let now = Monotonic::from_micros(ms * 1_000);
            watch.observe(steps.current(), now);
            assert!(!watch.is_stalled(steps.current(), now, Duration::from_secs(5)));
            steps.finish_step();
        }
        drop(round);
        assert_eq!(steps.current(), None);
    }
}
