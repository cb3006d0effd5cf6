//! One lane: what it holds, and whether to ask the store for more.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{
    Action, Job, LaneKey, LaneSettings, Random, Taken, Terms,
    breaker::{Allow, Breaker},
    budget::Budget,
    call::Calls,
    destination::Destinations,
    rate::Bucket,
    settling::Settling,
    suspect::Suspect,
    wheel::Wheel,
};
use crate::{Attempt, Lost, Monotonic, Now, Outcome, Timestamp, store::Verdict};

/// A wake-up further away than this is set in steps, so that a slewing wall clock is followed.
const WAKE_AHEAD_MAX: Duration = Duration::from_secs(10);
/// After a claim that gave nothing although its lower bound had passed: doubles up to the maximum.
const EMPTY_PAUSE_MIN: Duration = Duration::from_millis(1);
const EMPTY_PAUSE_MAX: Duration = Duration::from_millis(512);
/// One claim asks for at most so many.
const CLAIM_MAX: usize = 1_024;

/// A lane whose target is being tried with one message claims so many to find that one.
const TRIAL_CLAIM_MAX: usize = 16;

/// One lane at a glance, as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneLook {
    /// Messages claimed and not yet settled.
    pub in_flight: usize,
    /// Calls of the sink or handler under way.
    pub calls: usize,
    /// How the lane's target is.
    pub target: Target,
    /// What the target said when it was last away.
    pub last_error: Option<String>,
    /// Destinations inside the target that are left alone, or being tried with one message.
    pub destinations_open: usize,
}

/// How the target of a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// There, as far as anybody knows.
    Here,
    /// Away: left alone until it is probed again.
    Away,
    /// Being tried with one message.
    Tried,
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
    pub(super) settling: Settling,
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

/// A claimed message.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) terms: Terms,
    pub(super) lease_end: Monotonic,
    /// Goes out in a call of its own.
    pub(super) alone: bool,
    /// Why nobody knows whether an earlier call within this claim delivered it.
    pub(super) unknown: Option<String>,
}

impl Held {
    /// The try that must be recorded although a later one within the same claim says nothing of it: a call did go
    /// out, and nobody knows what became of it.
    pub(super) fn unknown_at(&self, at: Timestamp) -> Option<Attempt> {
        Some(Attempt::new(at, Outcome::Unknown, self.unknown.clone()?))
    }
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    pub(super) settings: LaneSettings,
    pub(super) paused: bool,
    pub(super) stopping: bool,
    /// A suspect of this lane waits for another lane's.
    pub(super) blocked: bool,
    /// Nothing is due before then, as far as anybody told.
    pub(super) look_at: Option<Timestamp>,
    /// Told while a claim was under way: its answer may not know of it.
    hinted: Option<Timestamp>,
    /// No claim before then, after a failure.
    not_before: Monotonic,
    /// The limit of the claim under way, with what may be moved.
    claiming: Option<usize>,
    pub(super) held: HashMap<u64, Held>,
    pub(super) buffer: VecDeque<Job>,
    pub(super) calls: Calls,
    pub(super) destinations: Destinations,
    pub(super) parked_armed: bool,
    /// By time: calls all have the same timeout.
    pub(super) timeouts: VecDeque<(Monotonic, u64)>,
    pub(super) timeout_armed: bool,
    pub(super) renew_armed: bool,
    pub(super) breaker: Breaker,
    bucket: Option<Bucket>,
    failures: u32,
    empties: u32,
    armed: Option<Monotonic>,
    pub(super) last_error: Option<String>,
    budget: Budget,
}

impl Lane {
    pub(super) fn new(key: LaneKey, settings: LaneSettings, paused: bool, now: Now) -> Self {
        let settings = settings.bounded();
        Self {
            key,
            bucket: settings.rate.map(|rate| Bucket::new(rate, now.mono())),
            settings,
            paused,
            stopping: false,
            blocked: false,
            // What waited from before is unknown: look once.
            look_at: Some(now.wall()),
            hinted: None,
            not_before: Monotonic::default(),
            claiming: None,
            held: HashMap::new(),
            buffer: VecDeque::new(),
            calls: Calls::default(),
            destinations: Destinations::default(),
            parked_armed: false,
            timeouts: VecDeque::new(),
            timeout_armed: false,
            renew_armed: false,
            breaker: Breaker::new(),
            failures: 0,
            empties: 0,
            armed: None,
            last_error: None,
            budget: Budget::default(),
        }
    }

    pub(super) fn look(&self) -> LaneLook {
        LaneLook {
            in_flight: self.held.len(),
            calls: self.calls.len(),
            target: match self.breaker.allows() {
                Allow::All => Target::Here,
                Allow::One => Target::Tried,
                Allow::Nothing => Target::Away,
            },
            last_error: self.last_error.clone(),
            destinations_open: self.destinations.open(),
        }
    }

    pub(super) fn set_paused(&mut self, paused: bool, now: Timestamp) {
        self.paused = paused;
        if !paused {
            // What became due meanwhile is unknown: look once.
            self.hint(now);
        }
    }

    /// Something is due at `due`. Says whether that was news.
    pub(super) fn hint(&mut self, due: Timestamp) -> bool {
        if self.claiming.is_some() {
            self.hinted = earliest(self.hinted, Some(due));
            return false;
        }
        let news = self.look_at.is_none_or(|known| due < known);
        self.look_at = earliest(self.look_at, Some(due));
        news
    }

    /// Whether it may have something to do by `time`. A lane that is held up needs no close watch.
    pub(super) fn due_by(&self, time: Timestamp) -> bool {
        let held_up = self.paused || self.stopping || self.breaker.allows() == Allow::Nothing;
        !held_up && self.look_at.is_some_and(|due| due <= time)
    }

    /// Does all that can be done now: hands over, hands back, asks for more, or sets the next wake-up.
    pub(super) fn advance(&mut self, step: &mut Step<'_>) {
        if self.paused || self.stopping || self.breaker.allows() == Allow::Nothing {
            self.hand_back_buffer(step);
        }
        self.judge_refusals(step);
        self.deliver(step);
        self.claim(step);
    }

    fn claim(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if self.claiming.is_some() || self.paused || self.stopping || self.blocked {
            return;
        }
        let Some(look_at) = self.look_at else { return };
        if look_at > now.wall() {
            return self.wake(now.mono_at(look_at), step);
        }
        if self.not_before > now.mono() {
            return self.wake(self.not_before, step);
        }
        let mut limit = match self.room() {
            0 => return,
            room => room.min(CLAIM_MAX),
        };
        // What the store moves is never held here. A target that is being tried again gets one message, by its sink.
        let mut movable = if self.breaker.allows() == Allow::All { self.settings.movable } else { 0 };
        if let Some(bucket) = &mut self.bucket {
            let available = bucket.available(now.mono());
            (limit, movable) = (limit.min(available), movable.min(available));
            if available == 0 {
                let next = bucket.next();
                return self.wake(next, step);
            }
            bucket.take(limit.max(movable));
        }
        self.claiming = Some(limit.max(movable));
        step.actions.push(Action::Claim { lane: self.key, limit, movable, lease: self.settings.lease });
    }

    /// How many more it may hold.
    fn room(&self) -> usize {
        let room = self.settings.in_flight.saturating_sub(self.held.len());
        let waiting = self.buffer.len() + self.destinations.parked();
        let room = room.min(self.settings.buffered.saturating_sub(waiting));
        let room = room.min(self.budget.room());
        match self.breaker.allows() {
            Allow::Nothing => 0,
            Allow::One if !self.held.is_empty() => 0,
            // The next ones may be for destinations that are left alone: one of several is for another.
            Allow::One if self.destinations.open() > 0 => room.min(TRIAL_CLAIM_MAX),
            Allow::One => room.min(1),
            Allow::All => {
                // While there is enough to do, a claim waits until it is worth its while.
                let worth = (self.settings.in_flight.min(self.settings.buffered) / 4).max(1);
                let slots = self.settings.concurrency.saturating_mul(self.settings.batch);
                let hungry = self.buffer.is_empty() && self.calls.messages() < slots;
                if hungry || room >= worth { room } else { 0 }
            }
        }
    }

    pub(super) fn wake(&mut self, at: Monotonic, step: &mut Step<'_>) {
        let at = at.min(step.mono().saturating_add(WAKE_AHEAD_MAX));
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            step.shared.wheel.set(at, Timer::Wake(self.key, at));
        }
    }

    /// A wake-up fired. Says whether it was the one that counts.
    pub(super) fn woken(&mut self, at: Monotonic) -> bool {
        let counts = self.armed == Some(at);
        if counts {
            self.armed = None;
        }
        counts
    }

    pub(super) fn claimed(
        &mut self,
        taken: Vec<Taken>,
        moved: usize,
        next: Option<Timestamp>,
        asked: Monotonic,
        step: &mut Step<'_>,
    ) {
        let limit = self.claiming.take().unwrap_or_default();
        self.failures = 0;
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(limit.saturating_sub(taken.len() + moved));
        }
        let now = step.now;
        let count = taken.len() + moved;
        let more = count > 0 && (count >= limit || taken.iter().any(is_suspect));
        if count == 0 && next.is_some_and(|next| next <= now.wall()) {
            let pause = EMPTY_PAUSE_MIN.saturating_mul(1 << self.empties.min(10)).min(EMPTY_PAUSE_MAX);
            self.empties += 1;
            self.not_before = now.mono().saturating_add(pause);
        } else {
            self.empties = 0;
        }
        self.look_at = earliest(earliest(next, self.hinted.take()), more.then(|| now.wall()));
        let lease_end = asked.saturating_add(self.settings.lease);
        for Taken { job, terms } in taken {
            let suspect = terms.lost != Lost::No;
            self.budget.take(terms.bytes);
            self.destinations.claimed(terms.destination, now.mono());
            self.held.insert(job.serial, Held { terms, lease_end, alone: suspect, unknown: None });
            if suspect && !step.shared.suspect.admit(job) {
                self.blocked = true;
                self.hand_back(job, step);
            } else {
                self.buffer.push_back(job);
            }
        }
        self.arm_renewal(step);
    }

    /// Says how often in a row the store failed.
    pub(super) fn claim_failed(&mut self, now: Monotonic, wait: impl FnOnce(u32) -> Duration) -> u32 {
        let limit = self.claiming.take().unwrap_or_default();
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(limit);
        }
        self.look_at = earliest(self.look_at, self.hinted.take());
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(wait(self.failures));
        self.failures
    }

    /// The claim never led to a try: as it was before.
    pub(super) fn hand_back(&mut self, job: Job, step: &mut Step<'_>) {
        let at = step.now.wall();
        let unknown = self.held.get(&job.serial).and_then(|held| held.unknown_at(at));
        let verdict = unknown.map_or(Verdict::HandBack, |attempt| Verdict::Retry { at, attempt });
        step.shared.settling.push(job, verdict);
    }

    fn hand_back_buffer(&mut self, step: &mut Step<'_>) {
        for job in std::mem::take(&mut self.buffer) {
            self.hand_back(job, step);
        }
        for (_, job) in self.destinations.take_all() {
            self.hand_back(job, step);
        }
    }

    /// A claimed message does not go after all, unless an earlier call within the same claim had it.
    pub(super) fn give_back_token(&mut self, job: Job) {
        let was_sent =
            self.held.get(&job.serial).is_some_and(|held| held.alone && held.terms.lost == Lost::No);
        if let (Some(bucket), false) = (&mut self.bucket, was_sent) {
            bucket.give_back(1);
        }
    }

    /// The message is in hand no more.
    pub(super) fn let_go(&mut self, job: Job, shared: &mut Shared) {
        if let Some(held) = self.held.remove(&job.serial) {
            self.budget.give_back(held.terms.bytes);
            shared.unblocked.extend(shared.suspect.release(job));
        }
    }

    /// Whether a lane that is to stop holds nothing any more.
    pub(super) fn is_gone(&self) -> bool {
        self.stopping && self.held.is_empty() && self.calls.is_empty() && self.claiming.is_none()
    }
}

fn is_suspect(taken: &Taken) -> bool {
    taken.terms.lost != Lost::No
}

pub(super) fn earliest(one: Option<Timestamp>, two: Option<Timestamp>) -> Option<Timestamp> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}
