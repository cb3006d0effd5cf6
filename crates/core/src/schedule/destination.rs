//! Destinations inside a lane: each has its own share of the slots, its own breaker and its own pace.
//!
//! A sink's connection may be fine while one queue, topic, partition or URL behind it is silent, full or forbidden. Messages
//! to such a destination leave the lane at once, deferred or denied, so that the others never wait behind them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{
    Job, Random,
    breaker::{Allow, Breaker},
};
use crate::{Monotonic, Now, Outcome, Timestamp};

/// Destinations with something to remember although nothing of theirs is under way, at most. The least recently used is
/// forgotten first, which costs it one try too many.
pub(super) const REMEMBERED_MAX: usize = 1_024;
/// A lane serves several destinations if it saw more than one within this time. One that is alone may use every slot.
const OTHERS_WINDOW: Duration = Duration::from_secs(60);
/// A claimed message waits this long for its destination's turn. Then it is deferred, and others take its room.
const PARKED_TIME_MAX: Duration = Duration::from_secs(1);
/// Deferred messages of one destination come back at this distance from each other on average, and those of one lane too: what
/// a destination that is away costs the store does not grow with its backlog.
const DEFERRED_GAP: Duration = Duration::from_millis(2);
/// They come back in groups, one claim each: at multiples of this time.
const DEFERRED_STEP: Duration = Duration::from_millis(100);
/// So many different messages in a row without any answer open the breaker of their destination. Fewer may be the fault of a
/// message.
const SILENT_MAX: usize = 3;

/// Why a message waits for a destination that is too slow for all that is meant for it.
pub(super) const CROWDED: &str = "not sent, the destination has as many messages under way as it may have";
/// What finds no slot is deferred at once for so long after a message waited in vain: otherwise each claim would fill the
/// lane with messages that cannot go.
const SLOW_TIME: Duration = Duration::from_secs(2);

/// A message that waits for a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) destination: u64,
    /// It goes out in a call of its own.
    pub(super) is_alone: bool,
    /// It may have killed a process.
    pub(super) is_suspect: bool,
}

/// What to do with a message, given the state of its destination.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Hand it over. The destination is being tried with it, or is well.
    Go { is_trial: bool },
    /// Keep it until its destination has a slot.
    Park,
    /// Put it back until then; no attempt counts.
    Defer { at: Timestamp, outcome: Outcome, detail: String },
    /// It would be denied like the last one: do not ask again.
    Deny { detail: String },
}

#[derive(Debug)]
struct Destination {
    under_way: usize,
    /// Whether a message is under way that shows if the destination is back.
    is_tried: bool,
    parked: VecDeque<(Monotonic, Job)>,
    breaker: Breaker,
    /// Why the breaker is open: how the last try ended.
    cause: Option<(Outcome, String)>,
    /// Messages of late that got no answer, each once. Cleared by any answer.
    silent: Vec<u64>,
    /// When the last one that was deferred comes back.
    deferred_to: Monotonic,
    /// It was too slow for its messages of late: until then, what finds no slot is deferred at once.
    slow_until: Monotonic,
    used: u64,
}

impl Destination {
    fn new() -> Self {
        Self {
            under_way: 0,
            is_tried: false,
            parked: VecDeque::new(),
            breaker: Breaker::new(),
            cause: None,
            silent: Vec::new(),
            deferred_to: Monotonic::default(),
            slow_until: Monotonic::default(),
            used: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0 && self.parked.is_empty()
    }

    /// Whether a new entry would be the same.
    fn is_forgettable(&self) -> bool {
        self.is_idle() && self.silent.is_empty() && self.breaker.allows() == Allow::All
    }
}

#[derive(Debug, Default)]
pub(super) struct Destinations {
    table: HashMap<u64, Destination>,
    /// Destinations with parked messages, each once, in turn.
    turns: VecDeque<u64>,
    parked: usize,
    last_claimed: Option<u64>,
    /// When a message to another destination than the one before was last claimed.
    others_at: Option<Monotonic>,
    /// Destinations whose breaker is not closed.
    open: usize,
    uses: u64,
    /// A timer for the message that is parked longest is set.
    pub(super) is_timer_armed: bool,
}

impl Destinations {
    /// A message to `key` was claimed.
    pub(super) fn claimed(&mut self, key: u64, now: Monotonic) {
        if self.last_claimed.is_some_and(|last| last != key) {
            self.others_at = Some(now);
        }
        self.last_claimed = Some(key);
    }

    fn has_others(&self, now: Monotonic) -> bool {
        self.others_at.is_some_and(|at| now.since(at) < OTHERS_WINDOW)
    }

    /// Decides about a message while `free` of the lane's slots are free. [`Admission::Go`] counts it as under way.
    pub(super) fn admit(&mut self, message: Candidate, free: usize, under_way: usize, now: Now) -> Admission {
        let Candidate { destination: key, is_alone, is_suspect } = message;
        let has_others = self.has_others(now.mono());
        self.uses += 1;
        // At most so many entries have something under way or parked.
        let busy_max = under_way + self.parked;
        if !self.table.contains_key(&key) && self.table.len() >= REMEMBERED_MAX + busy_max {
            self.forget_one();
        }
        let entry = self.table.entry(key).or_insert_with(Destination::new);
        entry.used = self.uses;
        entry.breaker.half_open_after(now.mono());
        let allowed = entry.breaker.allows();
        let is_open = match allowed {
            Allow::All => false,
            Allow::One => entry.is_tried,
            Allow::Nothing => true,
        };
        // What may have killed a process is owed a try alone, and there is one of them at a time.
        if is_open && !is_suspect {
            return self.put_off(key, now);
        }
        // A destination may have as many under way as the lane has slots left: one that hogs them leaves half, two leave a third.
        if has_others && entry.under_way >= free && !is_alone {
            if now.mono() >= entry.slow_until {
                return Admission::Park;
            }
            let at = self.defer_to(key, None, now);
            return Admission::Defer { at, outcome: Outcome::Throttled, detail: CROWDED.to_owned() };
        }
        entry.under_way += 1;
        let is_trial = allowed == Allow::One && !entry.is_tried;
        entry.is_tried |= is_trial;
        Admission::Go { is_trial }
    }

    fn put_off(&mut self, key: u64, now: Now) -> Admission {
        let entry = self.table.get(&key);
        let until = entry.and_then(|entry| entry.breaker.probe_at());
        match entry.and_then(|entry| entry.cause.clone()) {
            Some((Outcome::Denied, detail)) if until.is_some() => Admission::Deny {
                detail: format!("not sent, the destination denied the message before: {detail}"),
            },
            Some((outcome, detail)) => {
                let outcome = if outcome.counts() { Outcome::Unreachable } else { outcome };
                let detail = format!("not sent, the destination failed before: {detail}");
                Admission::Defer { at: self.defer_to(key, until, now), outcome, detail }
            }
            None => {
                let detail = "not sent, the destination is being tried with another message".to_owned();
                Admission::Defer { at: self.defer_to(key, until, now), outcome: Outcome::Unreachable, detail }
            }
        }
    }

    /// When a message to `key` that cannot go now comes back: not before `until`, and at a distance from the others.
    pub(super) fn defer_to(&mut self, key: u64, until: Option<Monotonic>, now: Now) -> Timestamp {
        let soonest = now.mono().saturating_add(PARKED_TIME_MAX);
        let mut at = until.unwrap_or(soonest).max(now.mono());
        // All together come back as often as one alone would, and none waits behind another's backlog.
        let gap = DEFERRED_GAP.saturating_mul(u32::try_from(self.open.max(1)).unwrap_or(u32::MAX));
        if let Some(entry) = self.table.get_mut(&key) {
            at = at.max(entry.deferred_to);
            entry.deferred_to = at.saturating_add(gap);
        }
        let step = DEFERRED_STEP.as_micros() as u64;
        let at = Monotonic::from_micros(at.as_micros().div_ceil(step).saturating_mul(step));
        now.wall().saturating_add(at.since(now.mono()))
    }

    /// Keeps `job` until its destination has a slot.
    pub(super) fn park(&mut self, key: u64, job: Job, now: Monotonic) {
        let entry = self.table.entry(key).or_insert_with(Destination::new);
        if entry.parked.is_empty() {
            self.turns.push_back(key);
        }
        entry.parked.push_back((now, job));
        self.parked += 1;
    }

    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// The next parked message whose destination may have a slot now; destinations take turns.
    pub(super) fn unpark(&mut self, free: usize, now: Monotonic) -> Option<Job> {
        let has_others = self.has_others(now);
        for _ in 0..self.turns.len() {
            let key = self.turns.pop_front()?;
            let Some(entry) = self.table.get_mut(&key) else { continue };
            let may_go = !has_others || entry.under_way < free;
            let job = if may_go { entry.parked.pop_front() } else { None };
            self.parked -= usize::from(job.is_some());
            if !entry.parked.is_empty() {
                self.turns.push_back(key);
            }
            if let Some((_, job)) = job {
                return Some(job);
            }
        }
        None
    }

    /// When the first parked message has waited long enough.
    pub(super) fn parked_until(&self) -> Option<Monotonic> {
        let first = |key: &u64| self.table.get(key)?.parked.front().map(|(since, _)| *since);
        Some(self.turns.iter().filter_map(first).min()?.saturating_add(PARKED_TIME_MAX))
    }

    /// Takes out what was parked for too long, with its destination.
    pub(super) fn overdue(&mut self, now: Monotonic) -> Vec<(u64, Job)> {
        let overdue = self.take_parked(|since| since.saturating_add(PARKED_TIME_MAX) <= now);
        for (key, _) in &overdue {
            if let Some(entry) = self.table.get_mut(key) {
                entry.slow_until = now.saturating_add(SLOW_TIME);
            }
        }
        overdue
    }

    /// Takes out all that is parked, with its destination.
    pub(super) fn take_all(&mut self) -> Vec<(u64, Job)> {
        self.take_parked(|_| true)
    }

    fn take_parked(&mut self, is_taken: impl Fn(Monotonic) -> bool) -> Vec<(u64, Job)> {
        let mut taken = Vec::new();
        for key in std::mem::take(&mut self.turns) {
            let Some(entry) = self.table.get_mut(&key) else { continue };
            while let Some((_, job)) = entry.parked.pop_front_if(|(since, _)| is_taken(*since)) {
                taken.push((key, job));
            }
            if entry.parked.is_empty() {
                self.drop_if_forgettable(key);
            } else {
                self.turns.push_back(key);
            }
        }
        self.parked -= taken.len();
        taken
    }

    /// A message to `key` is under way no more.
    pub(super) fn ended(&mut self, key: u64, is_trial: bool) {
        if let Some(entry) = self.table.get_mut(&key) {
            entry.under_way = entry.under_way.saturating_sub(1);
            entry.is_tried &= !is_trial;
        }
        self.drop_if_forgettable(key);
    }

    /// The destination answered a message. Says whether that closed its breaker.
    pub(super) fn answered(&mut self, key: u64) -> bool {
        let Some(entry) = self.table.get_mut(&key) else { return false };
        entry.silent.clear();
        let is_closed = entry.breaker.reached();
        if is_closed {
            self.open = self.open.saturating_sub(1);
            entry.cause = None;
            entry.deferred_to = Monotonic::default();
        }
        self.drop_if_forgettable(key);
        is_closed
    }

    /// The destination gave no answer for `message`. Says whether that is reason enough to leave it alone: of one that is being
    /// tried, only the trial tells.
    pub(super) fn was_silent(&mut self, key: u64, message: u64, is_trial: bool) -> bool {
        let entry = self.table.entry(key).or_insert_with(Destination::new);
        if !entry.silent.contains(&message) && entry.silent.len() < SILENT_MAX {
            entry.silent.push(message);
        }
        match entry.breaker.allows() {
            Allow::One => is_trial,
            Allow::All | Allow::Nothing => entry.silent.len() >= SILENT_MAX,
        }
    }

    /// Whether what a message says against its destination counts: of one that is being tried, only the trial tells.
    pub(super) fn is_told_by(&self, key: u64, is_trial: bool) -> bool {
        is_trial || self.table.get(&key).is_none_or(|entry| entry.breaker.allows() != Allow::One)
    }

    /// Leaves the destination alone for a while. Says until when, and whether that is news.
    pub(super) fn trip(
        &mut self,
        key: u64,
        cause: (Outcome, String),
        wish: Option<Duration>,
        now: Monotonic,
        random: &mut Random,
    ) -> (Monotonic, bool) {
        let entry = self.table.entry(key).or_insert_with(Destination::new);
        let is_news = entry.breaker.allows() == Allow::All;
        self.open += usize::from(is_news);
        entry.cause = Some(cause);
        (entry.breaker.trip(now, wish, random), is_news)
    }

    /// Until when the destination is left alone, if it is.
    pub(super) fn open_until(&self, key: u64) -> Option<Monotonic> {
        self.table.get(&key)?.breaker.probe_at()
    }

    /// Destinations that are left alone or being tried.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    fn drop_if_forgettable(&mut self, key: u64) {
        if self.table.get(&key).is_some_and(Destination::is_forgettable) {
            self.table.remove(&key);
        }
    }

    fn forget_one(&mut self) {
        let idle = self.table.iter().filter(|(_, entry)| entry.is_idle());
        let Some(key) = idle.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else { return };
        if self.table.remove(&key).is_some_and(|entry| entry.breaker.allows() != Allow::All) {
            self.open = self.open.saturating_sub(1);
        }
    }
}
