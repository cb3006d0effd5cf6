//! The messages that a lane has claimed and not settled.

use std::collections::{HashMap, VecDeque};

use super::{DeliveryTerms, Job, LaneKey, budget::Budget};
use crate::{Attempt, LeaseLoss, Monotonic, Outcome, Timestamp};

/// A claimed message.
#[derive(Debug)]
pub(super) struct ClaimState {
    pub(super) terms: DeliveryTerms,
    lease_end: Monotonic,
    /// Whether it is delivered in a call of its own.
    is_alone: bool,
    /// Why the outcome of an earlier call within this claim is unknown.
    unknown: Option<String>,
}

impl ClaimState {
    /// A new claim. A suspect is delivered alone.
    pub(super) fn new(terms: DeliveryTerms, lease_end: Monotonic) -> Self {
        Self { is_alone: terms.lost != LeaseLoss::None, terms, lease_end, unknown: None }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether its lease ends by `time`.
    pub(super) fn ends_by(&self, time: Monotonic) -> bool {
        self.lease_end <= time
    }

    /// Its lease was renewed until `end`. A lease never gets shorter.
    pub(super) fn extend(&mut self, end: Monotonic) {
        self.lease_end = self.lease_end.max(end);
    }

    /// It is sent once more within this claim, in a call of its own. `unknown`: why the outcome of the last call is unknown, if
    /// it is.
    pub(super) fn retry_alone(&mut self, unknown: Option<String>) {
        self.is_alone = true;
        if unknown.is_some() {
            self.unknown = unknown;
        }
    }

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
        self.is_alone && !self.is_suspect()
    }
}

/// The claims of a lane. Every claim leaves by [`remove`](Self::remove), so that the counted bytes cannot drift.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_serial: HashMap<u64, ClaimState>,
    budget: Budget,
    /// Claims that wait for a call, in order. Removed ones are skipped.
    waiting: VecDeque<Job>,
    /// A timer for the next renewal of leases is set.
    is_renewal_armed: bool,
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
        let ending = self.by_serial.iter().filter(|(_, claim)| claim.ends_by(time));
        let mut jobs: Vec<_> = ending.map(|(&serial, _)| Job { lane, serial }).collect();
        jobs.sort_unstable();
        jobs
    }

    /// About how many more messages fit into the memory budget.
    pub(super) fn room(&self) -> usize {
        self.budget.room()
    }

    /// How many claims wait for a call; removed ones count until they are met.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets a claim wait for a call, behind the others.
    pub(super) fn wait(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Lets a claim wait for a call, before the others.
    pub(super) fn wait_first(&mut self, job: Job) {
        self.waiting.push_front(job);
    }

    pub(super) fn first_waiting(&self) -> Option<Job> {
        self.waiting.front().copied()
    }

    pub(super) fn pop_waiting(&mut self) {
        self.waiting.pop_front();
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<Job> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether a timer for the next renewal must be set now: there are claims, and none is set.
    pub(super) fn arm_renewal(&mut self) -> bool {
        let is_due = !self.is_renewal_armed && !self.is_empty();
        self.is_renewal_armed |= is_due;
        is_due
    }

    /// The timer fired: it must be armed again.
    pub(super) fn disarm_renewal(&mut self) {
        self.is_renewal_armed = false;
    }
}
