//! One lane: what it holds, and whether to ask the store for more.

use std::time::Duration;

use super::{
    Action, ClaimedJob, Job, LaneKey, LaneSettings, Random,
    breaker::{Allow, Breaker},
    call::Calls,
    call_timeouts::CallTimeouts,
    claim_timing::{ClaimAnswer, ClaimTime, ClaimTiming},
    claims::{ClaimState, Claims},
    destination::Destinations,
    rate::Bucket,
    settle_queue::SettleQueue,
    suspect::Suspect,
    wheel::Wheel,
};
use crate::{LeaseLoss, Monotonic, Now, Timestamp, store::Settlement};

/// One claim asks for at most so many.
const CLAIM_MAX: usize = 1_024;

/// A lane whose target is being tried with one message claims so many to find that one.
const TRIAL_CLAIM_MAX: usize = 16;

/// One lane at a glance, as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// Messages claimed and not yet settled.
    pub in_flight: usize,
    /// Calls of the sink or handler under way.
    pub calls: usize,
    /// How the lane's target is.
    pub target: BreakerState,
    /// What the target said when it was last away.
    pub last_error: Option<String>,
    /// Destinations inside the target that are left alone, or being tried with one message.
    pub destinations_open: usize,
}

/// How the target of a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// There, as far as anybody knows.
    Closed,
    /// Away: left alone until it is probed again.
    Open,
    /// Being tried with one message.
    HalfOpen,
}

/// A reason to look at a lane, or at the settles, at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Wake(LaneKey, Monotonic),
    Probe(LaneKey),
    Unanswered(LaneKey),
    Renew(LaneKey),
    Timeout(LaneKey),
    Parked(LaneKey),
    Grace(LaneKey),
    Settle,
}

/// What the lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) wheel: Wheel<Timer>,
    pub(super) random: Random,
    pub(super) settle_queue: SettleQueue,
    pub(super) suspect: Suspect,
    pub(super) serial: u64,
    /// Lanes that may go on because a suspect was settled.
    pub(super) unblocked: Vec<LaneKey>,
}

/// One step: its time, what the lanes share, and what is to be done.
pub(super) struct Step<'a> {
    pub(super) now: Now,
    pub(super) shared: &'a mut Shared,
    pub(super) actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    pub(super) fn mono(&self) -> Monotonic {
        self.now.mono()
    }
}

/// Whether a lane may claim and deliver, as far as operators, a stop and suspects decide.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// An operator paused the lane.
    pub(super) is_paused: bool,
    /// The lane is served no more once it holds nothing.
    pub(super) is_stopping: bool,
    /// A suspect of this lane waits for another lane's.
    pub(super) is_blocked: bool,
}

impl Gate {
    /// Whether messages that wait for a call go back to the store.
    fn releases(&self) -> bool {
        self.is_paused || self.is_stopping
    }

    fn may_claim(&self) -> bool {
        !self.releases() && !self.is_blocked
    }
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    pub(super) settings: LaneSettings,
    pub(super) gate: Gate,
    pub(super) timing: ClaimTiming,
    pub(super) claims: Claims,
    pub(super) calls: Calls,
    pub(super) timeouts: CallTimeouts,
    pub(super) destinations: Destinations,
    pub(super) breaker: Breaker,
    pub(super) last_error: Option<String>,
    rate: Option<Bucket>,
}

impl Lane {
    pub(super) fn new(key: LaneKey, settings: LaneSettings, is_paused: bool, now: Now) -> Self {
        let settings = settings.bounded();
        Self {
            key,
            rate: settings.rate.map(|rate| Bucket::new(rate, now.mono())),
            settings,
            gate: Gate { is_paused, ..Gate::default() },
            timing: ClaimTiming::new(now.wall()),
            claims: Claims::default(),
            calls: Calls::default(),
            timeouts: CallTimeouts::default(),
            destinations: Destinations::default(),
            breaker: Breaker::new(),
            last_error: None,
        }
    }

    pub(super) fn snapshot(&self) -> LaneSnapshot {
        LaneSnapshot {
            in_flight: self.claims.len(),
            calls: self.calls.len(),
            target: match self.breaker.allows() {
                Allow::All => BreakerState::Closed,
                Allow::One => BreakerState::HalfOpen,
                Allow::Nothing => BreakerState::Open,
            },
            last_error: self.last_error.clone(),
            destinations_open: self.destinations.open(),
        }
    }

    pub(super) fn set_paused(&mut self, is_paused: bool, now: Timestamp) {
        self.gate.is_paused = is_paused;
        if !is_paused {
            // What became due meanwhile is unknown: claim once.
            self.timing.hint(now);
        }
    }

    /// Whether it may have something to do by `time`. A lane that may not deliver needs no close watch.
    pub(super) fn is_due_by(&self, time: Timestamp) -> bool {
        let is_held_up = self.gate.releases() || self.breaker.allows() == Allow::Nothing;
        !is_held_up && self.timing.is_due_by(time)
    }

    /// Does all that can be done now: delivers, releases, claims, or sets the next wake-up.
    pub(super) fn advance(&mut self, step: &mut Step<'_>) {
        if self.gate.releases() || self.breaker.allows() == Allow::Nothing {
            self.release_waiting(step);
        }
        self.judge_refusals(step);
        self.deliver(step);
        self.claim(step);
    }

    fn claim(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if !self.gate.may_claim() {
            return;
        }
        match self.timing.time(now) {
            ClaimTime::Never => return,
            ClaimTime::At(time) => return self.wake(time, step),
            ClaimTime::Now => {}
        }
        let mut limit = match self.room() {
            0 => return,
            room => room.min(CLAIM_MAX),
        };
        // What the store delivers by itself is never held here. A target that is being tried again gets one message, by its sink.
        let mut movable = if self.breaker.allows() == Allow::All { self.settings.movable } else { 0 };
        if let Some(bucket) = &mut self.rate {
            let available = bucket.available(now.mono());
            (limit, movable) = (limit.min(available), movable.min(available));
            if available == 0 {
                let next = bucket.next();
                return self.wake(next, step);
            }
            bucket.take(limit.max(movable));
        }
        self.timing.begin(limit.max(movable));
        step.actions.push(Action::Claim { lane: self.key, limit, movable, lease: self.settings.lease });
    }

    /// How many more it may hold.
    fn room(&self) -> usize {
        let room = self.settings.in_flight.saturating_sub(self.claims.len());
        let waiting = self.claims.waiting.len() + self.destinations.parked();
        let room = room.min(self.settings.buffered.saturating_sub(waiting));
        let room = room.min(self.claims.room());
        match self.breaker.allows() {
            Allow::Nothing => 0,
            Allow::One if !self.claims.is_empty() => 0,
            // The next ones may be for destinations that are left alone: one of several is for another.
            Allow::One if self.destinations.open() > 0 => room.min(TRIAL_CLAIM_MAX),
            Allow::One => room.min(1),
            Allow::All => {
                // While there is enough to do, a claim waits until it is worth its while.
                let worth = (self.settings.in_flight.min(self.settings.buffered) / 4).max(1);
                let slots = self.settings.concurrency.saturating_mul(self.settings.batch);
                let hungry = self.claims.waiting.is_empty() && self.calls.messages() < slots;
                if hungry || room >= worth { room } else { 0 }
            }
        }
    }

    pub(super) fn wake(&mut self, at: Monotonic, step: &mut Step<'_>) {
        if let Some(at) = self.timing.arm(at, step.mono()) {
            step.shared.wheel.set(at, Timer::Wake(self.key, at));
        }
    }

    /// A claim was answered, at `asked` of the monotonic clock: leases run from there.
    pub(super) fn claimed(
        &mut self,
        taken: Vec<ClaimedJob>,
        moved: usize,
        next: Option<Timestamp>,
        asked: Monotonic,
        step: &mut Step<'_>,
    ) {
        let limit = self.timing.limit();
        let count = taken.len() + moved;
        if let Some(bucket) = &mut self.rate {
            bucket.give_back(limit.saturating_sub(count));
        }
        let is_suspect = |taken: &ClaimedJob| taken.terms.lost != LeaseLoss::None;
        let has_more = count > 0 && (count >= limit || taken.iter().any(is_suspect));
        self.timing.answered(ClaimAnswer { count, next, has_more }, step.now);
        let lease_end = asked.saturating_add(self.settings.lease);
        for ClaimedJob { job, terms } in taken {
            self.destinations.claimed(terms.destination, step.mono());
            let alone = terms.lost != LeaseLoss::None;
            self.claims.insert(job, ClaimState { terms, lease_end, alone, unknown: None });
            if !alone || self.admit_suspect(job, step) {
                self.claims.waiting.push_back(job);
            }
        }
        self.arm_renewal(step);
    }

    /// Returns how often in a row the store failed.
    pub(super) fn claim_failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        if let Some(bucket) = &mut self.rate {
            bucket.give_back(self.timing.limit());
        }
        self.timing.failed(now, wait)
    }

    /// The claim never led to an attempt: the message is pending as before.
    pub(super) fn release(&mut self, job: Job, step: &mut Step<'_>) {
        let at = step.now.wall();
        let unknown = self.claims.get(job).and_then(|claim| claim.unknown_at(at));
        let settlement = unknown.map_or(Settlement::Release, |attempt| Settlement::Retry { at, attempt });
        step.shared.settle_queue.push(job, settlement);
    }

    fn release_waiting(&mut self, step: &mut Step<'_>) {
        for job in std::mem::take(&mut self.claims.waiting) {
            self.release(job, step);
        }
        for (_, job) in self.destinations.take_all() {
            self.release(job, step);
        }
    }

    /// A claimed message does not go after all, unless an earlier call within the same claim had it.
    pub(super) fn give_back_token(&mut self, job: Job) {
        let was_sent = self.claims.get(job).is_some_and(ClaimState::was_sent);
        if let (Some(bucket), false) = (&mut self.rate, was_sent) {
            bucket.give_back(1);
        }
    }

    /// The claim is settled or lost.
    pub(super) fn remove_claim(&mut self, job: Job, shared: &mut Shared) {
        if self.claims.remove(job) {
            shared.unblocked.extend(shared.suspect.release(job));
        }
    }

    /// Whether a lane that is to stop holds nothing any more.
    pub(super) fn is_stopped(&self) -> bool {
        let is_empty = self.claims.is_empty() && self.calls.is_empty() && !self.timing.is_in_progress();
        self.gate.is_stopping && is_empty
    }
}
