//! Suspects are delivered one at a time.

use super::{
    Job, LaneKey,
    lane::{Lane, Step},
    triage::wait_after_loss,
};
use crate::store::Settlement;

/// The suspect that is in flight. Suspects of all lanes are delivered one at a time, because after the next crash two
/// of them would leave the culprit unknown again.
#[derive(Debug, Default)]
pub(super) struct Suspect {
    in_flight: Option<Job>,
    waiting: Vec<LaneKey>,
}

impl Suspect {
    /// Whether `job` may be delivered now. If not, its lane is unblocked by [`release`](Self::release).
    pub(super) fn admit(&mut self, job: Job) -> bool {
        if self.in_flight.is_some() {
            self.waiting.push(job.lane);
            return false;
        }
        self.in_flight = Some(job);
        true
    }

    /// `job` is settled or lost. Returns the lanes that waited for it.
    pub(super) fn release(&mut self, job: Job) -> Vec<LaneKey> {
        if self.in_flight != Some(job) {
            return Vec::new();
        }
        self.in_flight = None;
        std::mem::take(&mut self.waiting)
    }
}

impl Lane {
    /// Whether a suspect is delivered now. If not, it is deferred like a failed attempt, or released until the other
    /// suspect is settled.
    pub(super) fn admit_suspect(&mut self, job: Job, step: &mut Step<'_>) -> bool {
        let Some(claim) = self.claims.get(job) else { return false };
        let random = &mut step.shared.random;
        if let Some(at) = wait_after_loss(step.now.wall(), &claim.terms, &self.settings, || random.draw()) {
            self.release_token(job);
            step.shared.settle_queue.push(job, Settlement::Defer { at });
            return false;
        }
        let is_admitted = step.shared.suspect.admit(job);
        if !is_admitted {
            self.gate.block();
            self.release(job, step);
        }
        is_admitted
    }
}
