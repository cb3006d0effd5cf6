//! Settlements on their way to the store: batched, and repeated until they are recorded.
//!
//! A store may refuse a batch for one of its settlements. A batch that fails again and again is halved until that one
//! is alone; it is repeated by itself, and holds up no other.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Action, Job, Random, Report, Scheduler,
    lane::{Step, Timer},
};
use crate::{Monotonic, store::Settlement};

/// Settle calls at the same time. Further settlements gather meanwhile, so that batches grow with the load.
const AT_ONCE: usize = 2;
/// Settlements in one call.
const BATCH_MAX: usize = 1_024;
/// A batch is halved from this failure on. Fewer may be a deadlock or a broken connection.
const HALVED_FROM: u32 = 3;
/// Waits after a failed call.
const STORE_WAIT_MIN: Duration = Duration::from_millis(50);
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct SettleQueue {
    /// Settlements that were in no call yet.
    queue: VecDeque<(Job, Settlement)>,
    /// Batches that failed, in the order in which they are repeated.
    failed: VecDeque<FailedBatch>,
    under_way: HashMap<u64, SettleCall>,
    jobs: HashSet<Job>,
    serial: u64,
    first_calls: Streak,
    repeated_calls: Streak,
}

/// Settlements whose call failed.
#[derive(Debug)]
struct FailedBatch {
    batch: Vec<(Job, Settlement)>,
    /// How often it failed.
    failures: u32,
    not_before: Monotonic,
}

/// A call under way.
#[derive(Debug)]
struct SettleCall {
    batch: Arc<[(Job, Settlement)]>,
    /// How often it failed before.
    failures: u32,
}

/// Failures in a row, and how long calls wait for them. First calls and repeated ones have one each: a settlement that
/// the store never takes delays no new one.
#[derive(Debug, Default)]
struct Streak {
    failures: u32,
    not_before: Monotonic,
}

impl Streak {
    fn failed(&mut self, now: Monotonic, random: &mut Random) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(store_wait(self.failures, random));
    }
}

impl SettleQueue {
    pub(super) fn push(&mut self, job: Job, settlement: Settlement) {
        self.jobs.insert(job);
        self.queue.push_back((job, settlement));
    }

    pub(super) fn has(&self, job: Job) -> bool {
        self.jobs.contains(&job)
    }

    /// The settlements of the next call and how often they failed, if a call may begin. While both are there, first calls
    /// and repeated ones take turns.
    fn next(&mut self, now: Monotonic) -> Option<(Vec<(Job, Settlement)>, u32)> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let may_begin = !self.queue.is_empty() && self.first_calls.not_before <= now;
        let is_repeating = self.under_way.values().any(|call| call.failures > 0);
        if self.repeated_calls.not_before <= now && !(may_begin && is_repeating) {
            let ready = self.failed.iter().position(|failed| failed.not_before <= now);
            if let Some(FailedBatch { batch, failures, .. }) =
                ready.and_then(|place| self.failed.remove(place))
            {
                return Some((batch, failures));
            }
        }
        let count = self.queue.len().min(BATCH_MAX);
        may_begin.then(|| (self.queue.drain(..count).collect(), 0))
    }

    fn succeeded(&mut self) {
        self.first_calls = Streak::default();
        self.repeated_calls = Streak::default();
    }

    /// Keeps the settlements of a failed call. Returns the failures in a row, and when calls may begin again.
    fn failed(&mut self, call: &SettleCall, now: Monotonic, random: &mut Random) -> (u32, [Monotonic; 2]) {
        let streak = if call.failures == 0 { &mut self.first_calls } else { &mut self.repeated_calls };
        streak.failed(now, random);
        let Streak { failures: times, not_before: any_not_before } = *streak;
        let failures = call.failures.saturating_add(1);
        let is_halved = failures >= HALVED_FROM && call.batch.len() > 1;
        let (size, not_before) = if is_halved {
            (call.batch.len().div_ceil(2), now)
        } else {
            (call.batch.len(), now.saturating_add(store_wait(failures, random)))
        };
        for part in call.batch.chunks(size) {
            self.failed.push_back(FailedBatch { batch: part.to_vec(), failures, not_before });
        }
        (times, [any_not_before, not_before])
    }
}

/// The wait after `times` failures in a row of a store. Not the retry policy, which is about messages.
pub(super) fn store_wait(times: u32, random: &mut Random) -> Duration {
    let top = STORE_WAIT_MIN.saturating_mul(1 << times.min(12)).min(STORE_WAIT_MAX);
    top / 2 + Duration::from_micros(random.draw() % (top.as_micros() as u64 / 2))
}

impl Scheduler {
    /// Starts settle calls for the settlements that wait.
    pub(super) fn flush(&mut self, step: &mut Step<'_>) {
        let settle_queue = &mut step.shared.settle_queue;
        while let Some((mut batch, failures)) = settle_queue.next(step.now.mono()) {
            batch.retain(|(job, _)| {
                let is_claimed = self.lanes.get(&job.lane).is_some_and(|lane| lane.claims.contains(*job));
                if !is_claimed {
                    settle_queue.jobs.remove(job);
                }
                is_claimed
            });
            if batch.is_empty() {
                continue;
            }
            settle_queue.serial += 1;
            let batch: Arc<[_]> = batch.into();
            settle_queue.under_way.insert(settle_queue.serial, SettleCall { batch: batch.clone(), failures });
            step.actions.push(Action::Settle { settle: settle_queue.serial, batch });
        }
    }

    pub(super) fn settled(&mut self, settle: u64, lost: &[Job], step: &mut Step<'_>) {
        let Some(call) = step.shared.settle_queue.under_way.remove(&settle) else { return };
        step.shared.settle_queue.succeeded();
        for (job, settlement) in call.batch.iter() {
            step.shared.settle_queue.jobs.remove(job);
            let Some(lane) = self.lanes.get_mut(&job.lane) else { continue };
            lane.remove_claim(*job, step.shared);
            match settlement {
                // The sweep finds lost ones.
                _ if lost.contains(job) => {}
                Settlement::Retry { at, .. } | Settlement::Defer { at } => _ = lane.hint(*at),
                Settlement::Release => _ = lane.hint(step.now.wall()),
                Settlement::Delivered { .. } | Settlement::Dead { .. } => {}
            }
            self.touch(job.lane);
        }
    }

    /// Keeps the settlements of a failed call. When a lease has ended, its renewal drops the claim and the flush skips
    /// it: the message is delivered again.
    pub(super) fn settle_failed(&mut self, settle: u64, step: &mut Step<'_>) {
        let Some(call) = step.shared.settle_queue.under_way.remove(&settle) else { return };
        let now = step.now.mono();
        let (times, wake_at) = step.shared.settle_queue.failed(&call, now, &mut step.shared.random);
        wake_at.into_iter().for_each(|at| step.shared.wheel.set(at, Timer::Settle));
        step.actions.push(Action::Report(Report::StoreFailing { times }));
    }
}
