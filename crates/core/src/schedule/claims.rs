//! The messages that a lane has claimed and not settled.

use std::collections::{HashMap, VecDeque};

use super::{DeliveryTerms, Job, LaneKey, budget::Budget};
use crate::{Attempt, LeaseLoss, Monotonic, Outcome, Timestamp};

/// A claimed message.
#[derive(Debug)]
pub(super) struct ClaimState {
    pub(super) terms: DeliveryTerms,
    pub(super) lease_end: Monotonic,
    /// Whether it is delivered in a call of its own.
    pub(super) alone: bool,
    /// Why the outcome of an earlier call within this claim is unknown.
    pub(super) unknown: Option<String>,
}

impl ClaimState {
    /// The attempt to record when a later call within the same claim has no outcome of its own: an earlier call was
    /// made, and its outcome is unknown.
    pub(super) fn unknown_at(&self, at: Timestamp) -> Option<Attempt> {
        Some(Attempt::new(at, Outcome::Unknown, self.unknown.clone()?))
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.terms.lost != LeaseLoss::None
    }

    /// Whether an earlier call within the same claim sent it.
    pub(super) fn was_sent(&self) -> bool {
        self.alone && !self.is_suspect()
    }
}

/// The claims of a lane. Every claim leaves by [`remove`](Self::remove), so that the counted bytes cannot drift.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_serial: HashMap<u64, ClaimState>,
    budget: Budget,
    /// Claims that wait for a call, in order. Removed ones are skipped.
    pub(super) waiting: VecDeque<Job>,
    /// A timer for the next renewal of leases is set.
    pub(super) is_renewal_armed: bool,
}

impl Claims {
    pub(super) fn len(&self) -> usize {
        self.by_serial.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_serial.is_empty()
    }

    pub(super) fn contains(&self, job: Job) -> bool {
        self.by_serial.contains_key(&job.serial)
    }

    pub(super) fn get(&self, job: Job) -> Option<&ClaimState> {
        self.by_serial.get(&job.serial)
    }

    pub(super) fn get_mut(&mut self, job: Job) -> Option<&mut ClaimState> {
        self.by_serial.get_mut(&job.serial)
    }

    pub(super) fn insert(&mut self, job: Job, claim: ClaimState) {
        self.budget.take(claim.terms.bytes);
        self.by_serial.insert(job.serial, claim);
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, job: Job) -> bool {
        let claim = self.by_serial.remove(&job.serial);
        if let Some(claim) = &claim {
            self.budget.release(claim.terms.bytes);
        }
        claim.is_some()
    }

    /// The claims whose lease ends by `time`, sorted, because a simulation must be repeatable.
    pub(super) fn ending_by(&self, lane: LaneKey, time: Monotonic) -> Vec<Job> {
        let ending = self.by_serial.iter().filter(|(_, claim)| claim.lease_end <= time);
        let mut jobs: Vec<_> = ending.map(|(&serial, _)| Job { lane, serial }).collect();
        jobs.sort_unstable();
        jobs
    }

    /// About how many more messages fit into the memory budget.
    pub(super) fn room(&self) -> usize {
        self.budget.room()
    }
}
