//! Settlements on their way to the store: batched, and repeated until they are recorded.

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
/// Waits after a failed call.
const STORE_WAIT_MIN: Duration = Duration::from_millis(50);
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct SettleQueue {
    queue: VecDeque<(Job, Settlement)>,
    under_way: HashMap<u64, Arc<[(Job, Settlement)]>>,
    jobs: HashSet<Job>,
    serial: u64,
    failures: u32,
    not_before: Monotonic,
}

impl SettleQueue {
    pub(super) fn push(&mut self, job: Job, settlement: Settlement) {
        self.jobs.insert(job);
        self.queue.push_back((job, settlement));
    }

    pub(super) fn has(&self, job: Job) -> bool {
        self.jobs.contains(&job)
    }
}

/// The wait after `times` failures in a row of a store. Not the retry policy, which is about messages.
pub(super) fn store_wait(times: u32, random: &mut Random) -> Duration {
    let top = STORE_WAIT_MIN.saturating_mul(1 << times.min(12)).min(STORE_WAIT_MAX);
    top / 2 + Duration::from_micros(random.draw() % (top.as_micros() as u64 / 2))
}

impl Scheduler {
    /// Starts settle calls for the queued settlements.
    pub(super) fn flush(&mut self, step: &mut Step<'_>) {
        let settle_queue = &mut step.shared.settle_queue;
        if settle_queue.not_before > step.now.mono() {
            return;
        }
        while settle_queue.under_way.len() < AT_ONCE && !settle_queue.queue.is_empty() {
            let count = settle_queue.queue.len().min(BATCH_MAX);
            let mut batch = Vec::with_capacity(count);
            for (job, settlement) in settle_queue.queue.drain(..count) {
                if self.lanes.get(&job.lane).is_some_and(|lane| lane.claims.contains(job)) {
                    batch.push((job, settlement));
                } else {
                    settle_queue.jobs.remove(&job);
                }
            }
            if batch.is_empty() {
                continue;
            }
            settle_queue.serial += 1;
            let batch: Arc<[_]> = batch.into();
            settle_queue.under_way.insert(settle_queue.serial, batch.clone());
            step.actions.push(Action::Settle { settle: settle_queue.serial, batch });
        }
    }

    pub(super) fn settled(&mut self, settle: u64, lost: &[Job], step: &mut Step<'_>) {
        let Some(batch) = step.shared.settle_queue.under_way.remove(&settle) else { return };
        step.shared.settle_queue.failures = 0;
        step.shared.settle_queue.not_before = Monotonic::default();
        for (job, settlement) in batch.iter() {
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

    /// Queues a failed settle again. When a lease has ended, its renewal drops the claim and the flush skips it: the
    /// message is delivered again.
    pub(super) fn settle_failed(&mut self, settle: u64, step: &mut Step<'_>) {
        let Some(batch) = step.shared.settle_queue.under_way.remove(&settle) else { return };
        for end in batch.iter().rev() {
            step.shared.settle_queue.queue.push_front(end.clone());
        }
        let settle_queue = &mut step.shared.settle_queue;
        settle_queue.failures = settle_queue.failures.saturating_add(1);
        let times = settle_queue.failures;
        settle_queue.not_before = step.now.mono().saturating_add(store_wait(times, &mut step.shared.random));
        step.shared.wheel.set(step.shared.settle_queue.not_before, Timer::Settle);
        step.actions.push(Action::Report(Report::StoreFailing { times }));
    }
}
