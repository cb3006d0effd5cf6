//! One suspect at a time.

use super::{
    Job, LaneKey,
    lane::{Lane, Step},
    triage::wait_after_loss,
};
use crate::store::Settlement;

/// What may have killed a process is tried alone: never two of them at once, in whatever lanes, or the next
/// death would leave the question open again.
#[derive(Debug, Default)]
pub(super) struct Suspect {
    in_flight: Option<Job>,
    waiting: Vec<LaneKey>,
}

impl Suspect {
    /// Whether `job` may be the one; if not, `lane` hears of it when the way is free.
    pub(super) fn admit(&mut self, job: Job) -> bool {
        if self.in_flight.is_some() {
            self.waiting.push(job.lane);
            return false;
        }
        self.in_flight = Some(job);
        true
    }

    /// `job` is in hand no more. Gives the lanes that waited for it.
    pub(super) fn release(&mut self, job: Job) -> Vec<LaneKey> {
        if self.in_flight != Some(job) {
            return Vec::new();
        }
        self.in_flight = None;
        std::mem::take(&mut self.waiting)
    }
}

impl Lane {
    /// Whether a suspect goes to its handler or sink now. If not, it waits as after a failed try, or for the other suspect.
    pub(super) fn admit_suspect(&mut self, job: Job, step: &mut Step<'_>) -> bool {
        let Some(claim) = self.claims.get(job) else { return false };
        let random = &mut step.shared.random;
        if let Some(at) = wait_after_loss(step.now.wall(), &claim.terms, &self.settings, || random.draw()) {
            self.give_back_token(job);
            step.shared.settle_queue.push(job, Settlement::Defer { at });
            return false;
        }
        let is_admitted = step.shared.suspect.admit(job);
        if !is_admitted {
            self.gate.is_blocked = true;
            self.release(job, step);
        }
        is_admitted
    }
}
