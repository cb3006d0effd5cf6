//! Handing messages to a lane's sink or handler, and what comes of it.

use std::time::Duration;

use super::{
    Action, AttemptResult, DeliveryKey, DeliveryTerms, Job, Report, Triage, Work,
    breaker::Allow,
    call::{Ended, Sent},
    destination::{Admission, CROWDED, Candidate},
    lane::{Lane, Step, Timer},
    settlement_of, triage,
};
use crate::{Attempt, ErrorScope, Monotonic, Now, Outcome, Timestamp, store::Settlement};

impl Lane {
    /// Hands over as much as the limits allow.
    pub(super) fn deliver(&mut self, step: &mut Step<'_>) {
        let (calls, batch) = match self.breaker.allows() {
            Allow::All => (self.settings.concurrency, self.settings.batch),
            Allow::One => (1, 1),
            Allow::Nothing => (0, 0),
        };
        let slots = calls.saturating_mul(batch).min(self.settings.in_flight);
        while self.calls.messages() < slots && self.has_waiting() {
            // With one message in a call, the slots are the calls.
            if batch > 1 && self.calls.fresh(step.mono()) >= calls {
                if let Some(at) = self.calls.fresh_until() {
                    self.wake(at, step);
                }
                break;
            }
            let call = self.next_call(batch, slots, step);
            if call.is_empty() {
                break;
            }
            step.shared.serial += 1;
            let serial = step.shared.serial;
            let end = step.mono().saturating_add(self.settings.timeout);
            self.timeouts.push(end, serial);
            self.arm_timeout(step);
            let delivery = DeliveryKey { lane: self.key, serial };
            let jobs = call.iter().map(|sent| sent.job).collect();
            self.calls.begin(serial, call, step.mono());
            step.actions.push(Action::Deliver { delivery, jobs });
        }
        self.arm_parked(step);
    }

    fn has_waiting(&self) -> bool {
        !self.claims.waiting.is_empty() || self.destinations.parked() > 0
    }

    /// Takes the next call's messages, deciding about each at the last moment. None, if nothing that waits can go now.
    fn next_call(&mut self, batch: usize, slots: usize, step: &mut Step<'_>) -> Vec<Sent> {
        let mut call = Vec::new();
        // A call that begins near the end of its lease would still run when somebody else may claim.
        let lease_end_min = step.mono().saturating_add(self.settings.lease / 4);
        while call.len() < batch {
            let free = slots.saturating_sub(self.calls.messages() + call.len());
            if free == 0 {
                break;
            }
            // What waited for its destination came first.
            if let Some(job) = self.destinations.unpark(free, step.mono()) {
                self.claims.waiting.push_front(job);
            }
            let Some(&job) = self.claims.waiting.front() else { break };
            let Some(claim) = self.claims.get(job) else {
                self.claims.waiting.pop_front();
                continue;
            };
            if claim.alone && !call.is_empty() {
                break;
            }
            let DeliveryTerms { message, destination, .. } = claim.terms;
            let (alone, is_suspect) = (claim.alone, claim.is_suspect());
            let decision = triage(step.now.wall(), &claim.terms, &self.settings.retry);
            let lease_ends = claim.lease_end <= lease_end_min;
            let attempt = claim.unknown_at(step.now.wall());
            self.claims.waiting.pop_front();
            match decision {
                Triage::Dead(reason) => {
                    step.shared.settle_queue.push(job, Settlement::Dead { reason, attempt });
                    continue;
                }
                Triage::Early => {
                    self.release(job, step);
                    continue;
                }
                Triage::Deliver if lease_ends => {
                    self.release(job, step);
                    continue;
                }
                Triage::Deliver => {}
            }
            let under_way = self.calls.messages() + call.len();
            let candidate = Candidate { destination, is_alone: alone, is_suspect };
            match self.admit(candidate, free, under_way, step.now) {
                Admission::Go { is_trial } => {
                    call.push(Sent { job, message, destination, is_trial });
                    if alone {
                        break;
                    }
                }
                Admission::Park => self.destinations.park(destination, job, step.mono()),
                Admission::Defer { at, outcome, detail } => self.defer(job, at, outcome, detail, step),
                Admission::Deny { detail } => {
                    self.give_back_token(job);
                    self.judge(job, AttemptResult::failed(Outcome::Denied, detail), step);
                }
            }
        }
        call
    }

    /// Handlers have no destinations: each message goes to the one handler.
    fn admit(&mut self, message: Candidate, free: usize, under_way: usize, now: Now) -> Admission {
        match self.settings.work {
            Work::Sink => self.destinations.admit(message, free, under_way, now),
            Work::Handler { .. } => Admission::Go { is_trial: false },
        }
    }

    /// Puts a message back that was not tried. What an earlier call within the claim left open is recorded.
    fn defer(&mut self, job: Job, at: Timestamp, outcome: Outcome, detail: String, step: &mut Step<'_>) {
        let now = step.now.wall();
        let unknown = self.claims.get(job).and_then(|claim| claim.unknown_at(now));
        let attempt = unknown.unwrap_or_else(|| Attempt::new(now, outcome, detail));
        self.give_back_token(job);
        step.shared.settle_queue.push(job, Settlement::Retry { at, attempt });
    }

    /// What was parked for too long is deferred: its destination is too slow for all that is meant for it.
    pub(super) fn defer_overdue(&mut self, step: &mut Step<'_>) {
        self.destinations.is_timer_armed = false;
        for (destination, job) in self.destinations.overdue(step.mono()) {
            let at = self.destinations.defer_to(destination, None, step.now);
            self.defer(job, at, Outcome::Throttled, CROWDED.to_owned(), step);
        }
        self.arm_parked(step);
    }

    fn arm_parked(&mut self, step: &mut Step<'_>) {
        if self.destinations.is_timer_armed {
            return;
        }
        if let Some(at) = self.destinations.parked_until() {
            self.destinations.is_timer_armed = true;
            step.shared.wheel.set(at, Timer::Parked(self.key));
        }
    }

    /// Messages of a call ended. A call that was given up before is ignored.
    pub(super) fn delivered(
        &mut self,
        serial: u64,
        ends: Vec<(usize, AttemptResult)>,
        is_over: bool,
        step: &mut Step<'_>,
    ) {
        let ended = self.calls.ended(serial, ends, is_over, step.mono());
        self.ended(ended, step);
        self.timeouts.drop_ended(|serial| self.calls.contains(serial));
    }

    /// Refusals do not wait for what is silent beside them.
    pub(super) fn judge_refusals(&mut self, step: &mut Step<'_>) {
        let refused = self.calls.overdue_refusals(step.mono());
        if !refused.is_empty() {
            self.ended(Ended::Each(refused), step);
        }
        if let Some(at) = self.calls.refusals_until() {
            self.wake(at, step);
        }
    }

    /// Gives up the calls whose time is over.
    pub(super) fn time_out(&mut self, step: &mut Step<'_>) {
        self.timeouts.disarm();
        while let Some(serial) = self.timeouts.pop_overdue(step.mono()) {
            let detail = format!("no answer within {:?}", self.settings.timeout);
            let end = match self.settings.work {
                Work::Sink => AttemptResult::silent(detail),
                Work::Handler { .. } => AttemptResult::failed(Outcome::Failed, detail),
            };
            self.give_up(serial, &end, step);
        }
        self.arm_timeout(step);
    }

    /// Ends a call before its time: `end` for every message without one.
    pub(super) fn give_up(&mut self, serial: u64, end: &AttemptResult, step: &mut Step<'_>) {
        if self.calls.contains(serial) {
            step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
            let ended = self.calls.give_up(serial, end, step.mono());
            self.ended(ended, step);
        }
    }

    /// The same, and no message is tried again alone.
    pub(super) fn give_up_each(&mut self, serial: u64, end: &AttemptResult, step: &mut Step<'_>) {
        step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
        let ends = self.calls.give_up(serial, end, step.mono()).into_ends();
        self.ended(Ended::Each(ends), step);
    }

    fn arm_timeout(&mut self, step: &mut Step<'_>) {
        if let Some(end) = self.timeouts.arm() {
            step.shared.wheel.set(end, Timer::Timeout(self.key));
        }
    }

    /// Judges the ends of a call.
    fn ended(&mut self, ended: Ended, step: &mut Step<'_>) {
        let (ends, is_whole) = match ended {
            Ended::Each(ends) => (ends, false),
            Ended::Whole(ends) => (ends, true),
        };
        self.watch_destinations(&ends, step);
        let outage_end = self.watch_target(&ends, step);
        if is_whole {
            return self.again_one_by_one(ends);
        }
        for (sent, end) in ends {
            let at = self.retry_at(sent, &end, outage_end, step.now);
            self.judge_at(sent.job, end, at, step);
        }
    }

    /// When a message is tried again whose failure counts for nothing: when its destination, or the whole target, is.
    fn retry_at(&mut self, sent: Sent, end: &AttemptResult, outage_end: Timestamp, now: Now) -> Timestamp {
        match end {
            AttemptResult::Failed { outcome, scope: ErrorScope::Destination, .. } if !outcome.counts() => {
                let until = self.destinations.open_until(sent.destination);
                self.destinations.defer_to(sent.destination, until, now)
            }
            _ => outage_end,
        }
    }

    fn judge(&mut self, job: Job, end: AttemptResult, step: &mut Step<'_>) {
        self.judge_at(job, end, step.now.wall(), step);
    }

    /// Decides what a message's end means.
    fn judge_at(&mut self, job: Job, end: AttemptResult, outage_end: Timestamp, step: &mut Step<'_>) {
        // A lost lease: the message comes again, this result means nothing.
        let Some(claim) = self.claims.get(job) else { return };
        let wall = step.now.wall();
        let settlement = match (&end, claim.unknown_at(wall)) {
            (AttemptResult::Failed { outcome, .. }, Some(attempt)) if !outcome.counts() => {
                Settlement::Retry { at: outage_end, attempt }
            }
            (AttemptResult::Failed { outcome: Outcome::Denied, detail, .. }, Some(attempt)) => {
                let random = step.shared.random.draw();
                let end = AttemptResult::failed(
                    Outcome::Unknown,
                    format!("{}; then denied: {detail}", attempt.detail),
                );
                settlement_of(wall, &self.settings, &claim.terms, end, outage_end, random)
            }
            _ => {
                let random = step.shared.random.draw();
                settlement_of(wall, &self.settings, &claim.terms, end, outage_end, random)
            }
        };
        step.shared.settle_queue.push(job, settlement);
    }

    /// One bad message may have failed all: each tries alone before any attempt counts.
    fn again_one_by_one(&mut self, ends: Vec<(Sent, AttemptResult)>) {
        for (Sent { job, .. }, end) in ends.into_iter().rev() {
            let Some(claim) = self.claims.get_mut(job) else { continue };
            claim.alone = true;
            if let AttemptResult::Failed { outcome: Outcome::Unknown, detail, .. } = end {
                claim.unknown = Some(detail);
            }
            self.claims.waiting.push_front(job);
        }
    }

    /// Lets the destinations see how their messages ended.
    fn watch_destinations(&mut self, ends: &[(Sent, AttemptResult)], step: &mut Step<'_>) {
        if self.settings.work != Work::Sink {
            return;
        }
        for (sent, end) in ends {
            let Sent { job, message, destination: key, is_trial } = *sent;
            let cause = match end {
                AttemptResult::Failed {
                    outcome: Outcome::Unknown,
                    detail,
                    scope: ErrorScope::Destination,
                    ..
                } => {
                    let is_enough = self.destinations.was_silent(key, message, is_trial);
                    is_enough.then(|| (Outcome::Unreachable, detail.clone()))
                }
                AttemptResult::Failed { outcome, detail, scope: ErrorScope::Destination, .. }
                    if !matches!(outcome, Outcome::Refused) =>
                {
                    let is_told = self.destinations.is_told_by(key, is_trial);
                    is_told.then(|| (*outcome, detail.clone()))
                }
                // The connection's fault, or nobody's: it says nothing of the destination.
                AttemptResult::Failed { outcome, .. }
                    if !outcome.counts() || *outcome == Outcome::Unknown =>
                {
                    None
                }
                AttemptResult::Delivered { .. } | AttemptResult::Failed { .. } => {
                    if self.destinations.answered(key) {
                        let report = Report::DestinationClosed { job, destination: key };
                        step.actions.push(Action::Report(report));
                    }
                    None
                }
            };
            if let Some(cause) = cause {
                self.trip_destination(job, key, cause, wish(end), step);
            }
            self.destinations.ended(key, is_trial);
        }
    }

    fn trip_destination(
        &mut self,
        job: Job,
        destination: u64,
        cause: (Outcome, String),
        wish: Option<Duration>,
        step: &mut Step<'_>,
    ) {
        let detail = cause.1.clone();
        let random = &mut step.shared.random;
        let (until, is_news) = self.destinations.trip(destination, cause, wish, step.now.mono(), random);
        if is_news {
            let report = Report::DestinationOpened { job, destination, until, detail };
            step.actions.push(Action::Report(report));
        }
    }

    /// Lets the breaker see how a call went. Gives the time at which an absent target is tried again.
    fn watch_target(&mut self, ends: &[(Sent, AttemptResult)], step: &mut Step<'_>) -> Timestamp {
        let wall = step.now.wall();
        if self.settings.work != Work::Sink || ends.is_empty() {
            return wall;
        }
        let ends = || ends.iter().map(|(_, end)| end);
        let outage = |end: &&AttemptResult| matches!(end, AttemptResult::Failed { outcome, scope: ErrorScope::Target, .. } if !outcome.counts());
        let unknown =
            |end: &AttemptResult| matches!(end, AttemptResult::Failed { outcome: Outcome::Unknown, .. });
        let trying = self.breaker.allows() == Allow::One;
        let culprit = ends()
            .filter(outage)
            .max_by_key(|end| wish(end))
            .or_else(|| ends().next().filter(|_| trying && ends().all(unknown)));
        if let Some(culprit @ AttemptResult::Failed { detail, .. }) = culprit {
            let until = self.trip(wish(culprit), detail.clone(), step);
            return wall.saturating_add(until.since(step.mono()));
        }
        if self.breaker.reached() {
            step.actions.push(Action::Report(Report::BreakerClosed { lane: self.key }));
        }
        wall
    }

    /// Leaves the target alone for a while.
    pub(super) fn trip(&mut self, wish: Option<Duration>, detail: String, step: &mut Step<'_>) -> Monotonic {
        let known = self.breaker.probe_at();
        self.last_error = Some(detail.clone());
        let until = self.breaker.trip(step.mono(), wish, &mut step.shared.random);
        if known != Some(until) {
            step.shared.wheel.set(until, Timer::Probe(self.key));
            step.actions.push(Action::Report(Report::BreakerOpened { lane: self.key, until, detail }));
        }
        until
    }

    /// The breaker's time has come, or an operator asks: see whether the target is back.
    pub(super) fn probe(&mut self, asked: bool, step: &mut Step<'_>) {
        if self.breaker.probe_at().is_some_and(|at| asked || at <= step.mono()) {
            let until = step.mono().saturating_add(self.settings.timeout);
            self.breaker.probing(until);
            step.shared.wheel.set(until, Timer::Unanswered(self.key));
            step.actions.push(Action::Probe { lane: self.key });
        }
    }

    /// A target that does not even answer a probe is still away.
    pub(super) fn unanswered(&mut self, step: &mut Step<'_>) {
        if self.breaker.is_unanswered(step.mono()) {
            let detail = format!("no answer to a probe within {:?}", self.settings.timeout);
            self.trip(None, detail, step);
        }
    }
}

fn wish(end: &AttemptResult) -> Option<Duration> {
    match end {
        AttemptResult::Failed { retry_after, .. } => *retry_after,
        AttemptResult::Delivered { .. } => None,
    }
}
