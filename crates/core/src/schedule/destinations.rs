//! Destinations of a lane: each has its share of the slots, a breaker and a rate of deferred messages.
//!
//! The connection of a sink may work while one queue, topic, partition or URL behind it is silent, full or forbidden.
//! Messages to such a destination leave the lane at once, deferred or denied, so that others never wait behind them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{
    Job, Random,
    admission::{Admission, Candidate, Deferral, busy_detail, newcomers_detail, not_sent},
    answers::Answers,
    breaker::Allow,
    call::SentMessage,
    destination::{Destination, PARKED_TIME_MAX},
    newcomers::Newcomers,
};
use crate::{Monotonic, Now, Outcome, Timestamp};

/// Idle destinations that are remembered, at most. The least recently used is evicted first, which costs it one extra
/// attempt.
pub(super) const REMEMBERED_MAX: usize = 1_024;
/// A lane has several destinations if it saw more than one within this time. A single one may use all slots.
const OTHERS_WINDOW: Duration = Duration::from_secs(60);
/// Average distance between deferred messages of one destination, so that the load on the store does not grow with the
/// backlog.
const DEFERRED_GAP: Duration = Duration::from_millis(2);
/// Deferred messages come back in groups at multiples of this time: one claim per group.
const DEFERRED_STEP: Duration = Duration::from_millis(100);
/// This many different messages in a row without an answer, or denied, open the breaker of their destination. Fewer may
/// be the fault of a message.
const EVIDENCE_MIN: usize = 3;

/// Adds `message` to the evidence against a destination, once.
fn note(evidence: &mut Vec<u64>, message: u64) {
    if !evidence.contains(&message) && evidence.len() < EVIDENCE_MIN {
        evidence.push(message);
    }
}

/// The wall time of `at`, rounded up to the time of a group.
fn in_group(at: Monotonic, now: Now) -> Timestamp {
    let step = DEFERRED_STEP.as_micros() as u64;
    let at = Monotonic::from_micros(at.as_micros().div_ceil(step).saturating_mul(step));
    now.wall().saturating_add(at.since(now.mono()))
}

#[derive(Debug, Default)]
pub(super) struct Destinations {
    table: HashMap<u64, Destination>,
    answers: Answers,
    newcomers: Newcomers,
    /// Destinations with parked messages, each once, in round-robin order.
    turns: VecDeque<u64>,
    parked: usize,
    last_claimed: Option<u64>,
    /// When two messages in a row last had different destinations.
    others_at: Option<Monotonic>,
    /// Destinations whose breaker is not closed.
    open: usize,
    uses: u64,
    /// When the timer for parked messages fires, if one is set.
    armed_at: Option<Monotonic>,
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

impl Destinations {
    /// A message to `key` was claimed.
    pub(super) fn claimed(&mut self, key: u64, now: Monotonic) {
        if self.last_claimed.is_some_and(|last| last != key) {
            self.others_at = Some(now);
        }
        self.last_claimed = Some(key);
        if self.answers.is_regular(key) {
            self.newcomers.regular_claimed(now);
        }
    }

    fn has_others(&self, now: Monotonic) -> bool {
        self.others_at.is_some_and(|at| now.since(at) < OTHERS_WINDOW)
    }

    /// Decides about a message while `free` slots of the lane are free. [`Admission::Go`] takes a slot.
    pub(super) fn admit(&mut self, message: Candidate, free: usize, under_way: usize, now: Now) -> Admission {
        let Candidate { destination: key, is_alone, is_suspect } = message;
        let has_others = self.has_others(now.mono());
        let is_newcomer = !self.answers.is_regular(key);
        let slots = free + under_way;
        let is_refused = is_newcomer && !is_suspect && self.newcomers.is_full(slots, now.mono());
        // What is deferred takes no place in the table.
        if is_refused && !self.table.contains_key(&key) {
            return self.refuse_newcomer(is_alone, now);
        }
        self.uses += 1;
        // At most this many entries are busy.
        let busy_max = under_way + self.parked;
        if !self.table.contains_key(&key) {
            // More than one is too many where more were busy a moment ago.
            self.evict((self.table.len() + 1).saturating_sub(REMEMBERED_MAX + busy_max));
        }
        let entry = self.table.entry(key).or_insert_with(|| Destination::new(self.answers.time(key)));
        entry.used = self.uses;
        entry.breaker.half_open_after(now.mono());
        let allowed = entry.breaker.allows();
        let is_open = match allowed {
            Allow::All => false,
            Allow::One => entry.is_tried,
            Allow::Nothing => true,
        };
        // A suspect must be tried alone, and there is one at a time: it passes an open breaker.
        if is_open && !is_suspect {
            return self.defer_or_deny(key, now);
        }
        if is_refused {
            return self.refuse_newcomer(is_alone, now);
        }
        // A destination may use as many slots as are free: one slow destination leaves half of them, two leave a third.
        if has_others && entry.under_way >= free && !is_alone {
            if !entry.is_slow(now.mono()) {
                return Admission::Park { is_newcomer: false };
            }
            return Admission::Defer(self.defer_busy(key, now));
        }
        if entry.under_way == 0 {
            entry.progress_at = now.mono();
        }
        entry.under_way += 1;
        let is_trial = allowed == Allow::One && !entry.is_tried;
        entry.is_tried |= is_trial;
        if is_newcomer {
            self.newcomers.sent(slots, now.mono());
        }
        Admission::Go { is_trial, is_newcomer }
    }

    /// Newcomers use all slots that they may: what becomes of another message to one.
    fn refuse_newcomer(&mut self, is_alone: bool, now: Now) -> Admission {
        // One that may have arrived is not deferred without a try, unless it waits in vain.
        if is_alone || !self.newcomers.all.is_slow(now.mono()) {
            return Admission::Park { is_newcomer: true };
        }
        Admission::Defer(self.defer_newcomer(now))
    }

    fn defer_or_deny(&mut self, key: u64, now: Now) -> Admission {
        let entry = self.table.get(&key);
        let until = entry.and_then(|entry| entry.breaker.probe_at());
        match entry.and_then(|entry| entry.cause.clone()) {
            Some((Outcome::Denied, detail)) if until.is_some() => Admission::Deny {
                detail: not_sent(&format!("the destination denied several messages before: {detail}")),
            },
            Some((outcome, detail)) => {
                let outcome = if outcome.counts() { Outcome::Unreachable } else { outcome };
                let detail = not_sent(&format!("the destination failed before: {detail}"));
                Admission::Defer(Deferral { at: self.defer_to(key, until, now), outcome, detail })
            }
            None => {
                let detail = not_sent("the destination is being tried with another message");
                let outcome = Outcome::Unreachable;
                Admission::Defer(Deferral { at: self.defer_to(key, until, now), outcome, detail })
            }
        }
    }

    /// When a deferred message to `key` comes back: not before `until`, and spread from the others.
    pub(super) fn defer_to(&mut self, key: u64, until: Option<Monotonic>, now: Now) -> Timestamp {
        let soonest = now.mono().saturating_add(PARKED_TIME_MAX);
        let mut at = until.unwrap_or(soonest).max(now.mono());
        // All destinations together come back as often as a single one would.
        let gap = DEFERRED_GAP.saturating_mul(u32::try_from(self.open.max(1)).unwrap_or(u32::MAX));
        if let Some(entry) = self.table.get_mut(&key) {
            at = at.max(entry.deferred_to);
            entry.deferred_to = at.saturating_add(gap);
        }
        in_group(at, now)
    }

    /// Defers a message to a newcomer. All of them come back as often as those of one destination would.
    fn defer_newcomer(&mut self, now: Now) -> Deferral {
        let all = &mut self.newcomers.all;
        let at = now.mono().saturating_add(PARKED_TIME_MAX).max(all.deferred_to);
        all.deferred_to = at.saturating_add(DEFERRED_GAP);
        Deferral { at: in_group(at, now), outcome: Outcome::Throttled, detail: newcomers_detail() }
    }

    /// Parks `job` until newcomers have a free slot.
    pub(super) fn park_newcomer(&mut self, job: Job, now: Monotonic) {
        self.newcomers.all.parked.push_back((now, job));
    }

    /// Parks `job` until its destination has a free slot.
    pub(super) fn park(&mut self, key: u64, job: Job, now: Monotonic) {
        let entry = self.table.entry(key).or_insert_with(|| Destination::new(self.answers.time(key)));
        if entry.parked.is_empty() {
            self.turns.push_back(key);
        }
        entry.parked.push_back((now, job));
        self.parked += 1;
    }

    pub(super) fn parked(&self) -> usize {
        self.parked + self.newcomers.all.parked.len()
    }

    /// The next parked message that may have a slot, while `free` of `slots` are free; destinations take turns.
    pub(super) fn unpark(&mut self, free: usize, slots: usize, now: Monotonic) -> Option<Job> {
        let has_others = self.has_others(now);
        if !self.newcomers.is_full(slots, now)
            && let Some((_, job)) = self.newcomers.all.parked.pop_front()
        {
            return Some(job);
        }
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

    /// When the next parked message must be deferred.
    fn parked_until(&self) -> Option<Monotonic> {
        let destinations = self.turns.iter().filter_map(|key| self.table.get(key)?.parked_until());
        destinations.chain(self.newcomers.all.parked_until()).min()
    }

    /// The time to set a timer for, unless one is set that fires before or nothing is parked.
    pub(super) fn arm(&mut self) -> Option<Monotonic> {
        let at = self.parked_until()?;
        let is_first = self.armed_at.is_none_or(|armed_at| at < armed_at);
        is_first.then(|| *self.armed_at.insert(at))
    }

    /// A timer fired: it must be armed again.
    pub(super) fn disarm(&mut self) {
        self.armed_at = None;
    }

    /// Removes messages that were parked for too long or whose destination has stalled, and defers them.
    pub(super) fn overdue(&mut self, now: Now) -> Vec<(Job, Deferral)> {
        let is_overdue = |entry: &Destination| entry.parked_until().is_some_and(|until| until <= now.mono());
        let mut overdue = Vec::new();
        for (key, job) in self.take_parked(is_overdue) {
            if let Some(entry) = self.table.get_mut(&key) {
                entry.be_slow(now.mono());
            }
            overdue.push((job, self.defer_busy(key, now)));
        }
        while is_overdue(&self.newcomers.all)
            && let Some((_, job)) = self.newcomers.all.parked.pop_front()
        {
            self.newcomers.all.be_slow(now.mono());
            overdue.push((job, self.defer_newcomer(now)));
        }
        overdue
    }

    fn defer_busy(&mut self, key: u64, now: Now) -> Deferral {
        Deferral { at: self.defer_to(key, None, now), outcome: Outcome::Throttled, detail: busy_detail() }
    }

    /// Removes all parked messages.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        let parked = self.take_parked(|_| true).into_iter().map(|(_, job)| job);
        parked.chain(self.newcomers.all.parked.drain(..).map(|(_, job)| job)).collect()
    }

    /// Removes parked messages, of each destination as long as `is_first_taken` says so of the first.
    fn take_parked(&mut self, is_first_taken: impl Fn(&Destination) -> bool) -> Vec<(u64, Job)> {
        let mut taken = Vec::new();
        for key in std::mem::take(&mut self.turns) {
            let Some(entry) = self.table.get_mut(&key) else { continue };
            while is_first_taken(entry)
                && let Some((_, job)) = entry.parked.pop_front()
            {
                taken.push((key, job));
            }
            if entry.parked.is_empty() {
                self.drop_if_default(key);
            } else {
                self.turns.push_back(key);
            }
        }
        self.parked -= taken.len();
        taken
    }

    /// A message has a result: frees its slot.
    pub(super) fn ended(&mut self, sent: &SentMessage, has_answered: bool, now: Monotonic) {
        let SentMessage { destination: key, is_trial, is_newcomer, .. } = *sent;
        if is_newcomer {
            self.newcomers.ended(has_answered, now);
        }
        if let Some(entry) = self.table.get_mut(&key) {
            entry.progress_at = now;
            entry.under_way = entry.under_way.saturating_sub(1);
            entry.is_tried &= !is_trial;
        }
        self.drop_if_default(key);
    }

    /// The destination took a message.
    pub(super) fn delivered(&mut self, sent: &SentMessage, now: Monotonic) {
        let (key, took) = (sent.destination, now.since(sent.sent_at));
        if sent.is_newcomer {
            self.newcomers.delivered(took);
        }
        let answer_time = self.answers.record(key, took);
        if let Some(entry) = self.table.get_mut(&key) {
            entry.answered(took, answer_time);
        }
    }

    /// The destination answered a message. Returns whether that closed its breaker.
    pub(super) fn answered(&mut self, key: u64) -> bool {
        let Some(entry) = self.table.get_mut(&key) else { return false };
        entry.silent.clear();
        entry.denied.clear();
        self.close(key)
    }

    /// The destination denied `message`. Returns whether its breaker must open.
    pub(super) fn record_denied(&mut self, key: u64, message: u64) -> bool {
        let entry = self.table.entry(key).or_insert_with(|| Destination::new(self.answers.time(key)));
        entry.silent.clear();
        note(&mut entry.denied, message);
        entry.denied.len() >= EVIDENCE_MIN
    }

    /// Closes a breaker that is half-open. Returns whether it was.
    pub(super) fn close(&mut self, key: u64) -> bool {
        let Some(entry) = self.table.get_mut(&key) else { return false };
        let is_closed = entry.breaker.close_after_success();
        if is_closed {
            self.open = self.open.saturating_sub(1);
            entry.cause = None;
            entry.deferred_to = Monotonic::default();
        }
        self.drop_if_default(key);
        is_closed
    }

    /// The destination did not answer `message`. Returns whether its breaker must open: while a trial runs, only the
    /// trial counts.
    pub(super) fn record_no_answer(&mut self, key: u64, message: u64, is_trial: bool) -> bool {
        let entry = self.table.entry(key).or_insert_with(|| Destination::new(self.answers.time(key)));
        note(&mut entry.silent, message);
        let is_silent = entry.silent.len() >= EVIDENCE_MIN;
        if is_silent {
            self.answers.fell_silent(key);
        }
        match entry.breaker.allows() {
            Allow::One => is_trial,
            Allow::All | Allow::Nothing => is_silent,
        }
    }

    /// Whether the failure of a message counts against its destination: while a trial runs, only the trial counts.
    pub(super) fn is_evidence(&self, key: u64, is_trial: bool) -> bool {
        is_trial || self.table.get(&key).is_none_or(|entry| entry.breaker.allows() != Allow::One)
    }

    /// Opens the breaker of a destination. Returns until when, and whether it was closed before.
    pub(super) fn trip(
        &mut self,
        key: u64,
        cause: (Outcome, String),
        retry_after: Option<Duration>,
        now: Monotonic,
        random: &mut Random,
    ) -> (Monotonic, bool) {
        let entry = self.table.entry(key).or_insert_with(|| Destination::new(self.answers.time(key)));
        let is_new = entry.breaker.allows() == Allow::All;
        self.open += usize::from(is_new);
        entry.cause = Some(cause);
        (entry.breaker.trip(now, retry_after, random), is_new)
    }

    /// Until when the breaker of the destination is open, if it is.
    pub(super) fn open_until(&self, key: u64) -> Option<Monotonic> {
        self.table.get(&key)?.breaker.probe_at()
    }

    /// Destinations whose breaker is not closed.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    fn drop_if_default(&mut self, key: u64) {
        if self.table.get(&key).is_some_and(Destination::is_default) {
            self.table.remove(&key);
        }
    }

    /// Evicts the `count` least recently used of the idle entries, or all of them, in one pass: after a backlog there may be
    /// thousands, and a step must not take long.
    fn evict(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let mut idle = Vec::new();
        for (key, entry) in &self.table {
            #[cfg(test)]
            self.visits.set(self.visits.get() + 1);
            if entry.is_idle() {
                idle.push((entry.used, *key));
            }
        }
        if count < idle.len() {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        for (_, key) in idle {
            let Some(entry) = self.table.remove(&key) else { continue };
            if entry.breaker.allows() != Allow::All {
                self.open = self.open.saturating_sub(1);
            }
            // Otherwise many that are silent would stay regular: none of them is remembered for long enough.
            if !entry.silent.is_empty() {
                self.answers.fell_silent(key);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// How many entries were looked at to find those to evict.
    #[cfg(test)]
    pub(super) fn visits(&self) -> usize {
        self.visits.get()
    }

    /// How many destinations are remembered or busy.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
