//! One lane: its claims, and when it claims more.

use std::time::Duration;

use super::{
    Action, ClaimedJob, Job, LaneKey, LaneSettings, Random,
    breaker::{Allow, Breaker},
    call::Calls,
    call_timeouts::CallTimeouts,
    claim_timing::{ClaimAnswer, ClaimTime, ClaimTiming},
    claims::{ClaimState, Claims},
    destinations::Destinations,
    gate::Gate,
    rate::Bucket,
    settle_queue::SettleQueue,
    suspect::Suspect,
    wheel::Wheel,
};
use crate::{LeaseLoss, Monotonic, Now, Timestamp, store::Settlement};

/// The largest limit of one claim.
const CLAIM_MAX: usize = 1_024;

/// The limit of a claim while the breaker is half-open: one of these messages is the trial.
const TRIAL_CLAIM_MAX: usize = 16;

/// The state of a lane on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// Messages claimed and not yet settled.
    pub in_flight: usize,
    /// Calls of the sink or handler under way.
    pub calls: usize,
    /// The state of the breaker.
    pub target: BreakerState,
    /// The last error of the target.
    pub last_error: Option<String>,
    /// Destinations whose breaker is open or half-open.
    pub destinations_open: usize,
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Deliveries pass.
    Closed,
    /// The target failed: deliveries wait until the next probe.
    Open,
    /// One message is delivered as a trial.
    HalfOpen,
}

/// A timer of a lane, or of the settles.
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

/// State that all lanes share.
#[derive(Debug)]
pub(super) struct CrossLaneState {
    pub(super) wheel: Wheel<Timer>,
    pub(super) random: Random,
    pub(super) settle_queue: SettleQueue,
    pub(super) suspect: Suspect,
    pub(super) serial: u64,
    /// Lanes that waited for a suspect which is settled now.
    pub(super) unblocked: Vec<LaneKey>,
}

/// The context of one step: time, shared state, and the actions so far.
pub(super) struct Step<'a> {
    pub(super) now: Now,
    pub(super) shared: &'a mut CrossLaneState,
    pub(super) actions: &'a mut Vec<Action>,
}

impl Step<'_> {
    pub(super) fn mono(&self) -> Monotonic {
        self.now.mono()
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
            gate: Gate::new(is_paused),
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
        self.gate.set_paused(is_paused);
        if !is_paused {
            // Messages may have become due meanwhile: claim once.
            self.timing.hint(now);
        }
    }

    /// Something may be due at `due`. Returns whether that is earlier than what was known.
    pub(super) fn hint(&mut self, due: Timestamp) -> bool {
        self.timing.hint(due)
    }

    /// Whether it may have messages to deliver by `time`. False for a lane that may not deliver.
    pub(super) fn is_due_by(&self, time: Timestamp) -> bool {
        let is_held_up = self.gate.releases() || self.breaker.allows() == Allow::Nothing;
        !is_held_up && self.timing.is_due_by(time)
    }

    /// Delivers, releases and claims what is possible now, or sets the next wake-up.
    pub(super) fn advance(&mut self, step: &mut Step<'_>) {
        if self.gate.releases() || self.breaker.allows() == Allow::Nothing {
            self.release_waiting(step);
        }
        self.settle_refusals(step);
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
        // Messages that the store delivers by itself are not held here. A half-open breaker gets one message, by its
        // sink.
        let mut in_store_max =
            if self.breaker.allows() == Allow::All { self.settings.in_store_max } else { 0 };
        if let Some(bucket) = &mut self.rate {
            let available = bucket.available(now.mono());
            (limit, in_store_max) = (limit.min(available), in_store_max.min(available));
            if available == 0 {
                let next = bucket.next();
                return self.wake(next, step);
            }
            bucket.take(limit.max(in_store_max));
        }
        self.timing.begin(limit.max(in_store_max));
        step.actions.push(Action::Claim { lane: self.key, limit, in_store_max, lease: self.settings.lease });
    }

    /// How many more claims it may hold.
    fn room(&self) -> usize {
        let room = self.settings.in_flight.saturating_sub(self.claims.len());
        let waiting = self.claims.waiting() + self.destinations.parked();
        let room = room.min(self.settings.buffered.saturating_sub(waiting));
        let room = room.min(self.claims.room());
        match self.breaker.allows() {
            Allow::Nothing => 0,
            Allow::One if !self.claims.is_empty() => 0,
            // Some of the next messages may be for destinations with an open breaker: claim several to find one that
            // can be the trial.
            Allow::One if self.destinations.open() > 0 => room.min(TRIAL_CLAIM_MAX),
            Allow::One => room.min(1),
            Allow::All => {
                // While calls are busy, a claim waits until it can take enough messages.
                let claim_min = (self.settings.in_flight.min(self.settings.buffered) / 4).max(1);
                let slots = self.settings.concurrency.saturating_mul(self.settings.batch);
                let is_idle = self.claims.waiting() == 0 && self.calls.messages() < slots;
                if is_idle || room >= claim_min { room } else { 0 }
            }
        }
    }

    pub(super) fn wake(&mut self, at: Monotonic, step: &mut Step<'_>) {
        if let Some(at) = self.timing.arm(at, step.mono()) {
            step.shared.wheel.set(at, Timer::Wake(self.key, at));
        }
    }

    /// The store answered a claim that began at `requested_at`: leases count from there.
    pub(super) fn claimed(
        &mut self,
        taken: Vec<ClaimedJob>,
        delivered_in_store: usize,
        next: Option<Timestamp>,
        requested_at: Monotonic,
        step: &mut Step<'_>,
    ) {
        let limit = self.timing.limit();
        let count = taken.len() + delivered_in_store;
        if let Some(bucket) = &mut self.rate {
            bucket.release(limit.saturating_sub(count));
        }
        let is_suspect = |taken: &ClaimedJob| taken.terms.lost != LeaseLoss::None;
        let may_have_more = count > 0 && (count >= limit || taken.iter().any(is_suspect));
        self.timing.answered(ClaimAnswer { count, next, may_have_more }, step.now);
        let lease_end = requested_at.saturating_add(self.settings.lease);
        for ClaimedJob { job, terms } in taken {
            self.destinations.claimed(terms.destination, step.mono());
            let claim = ClaimState::new(terms, lease_end);
            let is_suspect = claim.is_suspect();
            self.claims.insert(job, claim);
            if !is_suspect || self.admit_suspect(job, step) {
                self.claims.wait(job);
            }
        }
        self.arm_renewal(step);
    }

    /// A claim failed. Returns the failures in a row.
    pub(super) fn claim_failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        if let Some(bucket) = &mut self.rate {
            bucket.release(self.timing.limit());
        }
        self.timing.failed(now, wait)
    }

    /// Ends a claim without an attempt: the message is pending as before.
    pub(super) fn release(&mut self, job: Job, step: &mut Step<'_>) {
        let at = step.now.wall();
        let unknown = self.claims.get(job).and_then(|claim| claim.unknown_at(at));
        let settlement = unknown.map_or(Settlement::Release, |attempt| Settlement::Retry { at, attempt });
        step.shared.settle_queue.push(job, settlement);
    }

    fn release_waiting(&mut self, step: &mut Step<'_>) {
        for job in self.claims.take_waiting() {
            self.release(job, step);
        }
        for job in self.destinations.take_all() {
            self.release(job, step);
        }
    }

    /// Returns the rate token of a message that is not sent, unless an earlier call within the same claim sent it.
    pub(super) fn release_token(&mut self, job: Job) {
        let was_sent = self.claims.get(job).is_some_and(ClaimState::was_sent);
        if let (Some(bucket), false) = (&mut self.rate, was_sent) {
            bucket.release(1);
        }
    }

    /// Removes a claim that is settled or lost.
    pub(super) fn remove_claim(&mut self, job: Job, shared: &mut CrossLaneState) {
        if self.claims.remove(job) {
            shared.unblocked.extend(shared.suspect.release(job));
        }
    }

    /// Whether a stopping lane holds no claims.
    pub(super) fn is_stopped(&self) -> bool {
        let is_empty = self.claims.is_empty() && self.calls.is_empty() && !self.timing.is_in_progress();
        self.gate.is_stopping() && is_empty
    }
}
