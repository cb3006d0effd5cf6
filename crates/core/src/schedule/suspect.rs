//! One suspect at a time.

use super::{Job, LaneKey};

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
