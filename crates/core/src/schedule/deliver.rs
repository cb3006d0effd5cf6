//! Delivery: passing messages to a lane's sink or handler, and its results.

use std::time::Duration;

use super::{
    Action, AttemptResult, DeliveryKey, DeliveryTerms, Job, LaneWorker, Report, Triage,
    admission::{Admission, Candidate, Deferral},
    breaker::Allow,
    call::{CallResults, SentMessage},
    lane::{Lane, Step, Timer},
    settlement_of, triage,
};
use crate::{Attempt, ErrorScope, Monotonic, Now, Outcome, Timestamp, store::Settlement};

impl Lane {
    /// Starts as many calls as the limits allow.
    pub(super) fn deliver(&mut self, step: &mut Step<'_>) {
        let (calls, batch) = match self.breaker.allows() {
            Allow::All => (self.settings.concurrency, self.settings.batch),
            Allow::One => (1, 1),
            Allow::Nothing => (0, 0),
        };
        let slots = calls.saturating_mul(batch).min(self.settings.in_flight);
        while self.calls.messages() < slots && self.has_waiting() {
            // With one message per call, the slots are the calls.
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
            let timeout_at = step.mono().saturating_add(self.settings.timeout);
            self.timeouts.push(timeout_at, serial);
            self.arm_timeout(step);
            let delivery = DeliveryKey { lane: self.key, serial };
            let jobs = call.iter().map(|sent| sent.job).collect();
            self.calls.begin(serial, call, step.mono());
            step.actions.push(Action::Deliver { delivery, jobs });
        }
        self.arm_parked(step);
    }

    fn has_waiting(&self) -> bool {
        self.claims.waiting() > 0 || self.destinations.parked() > 0
    }

    /// Takes the messages of the next call; each is triaged at the last moment. Empty if none can be sent now.
    fn next_call(&mut self, batch: usize, slots: usize, step: &mut Step<'_>) -> Vec<SentMessage> {
        let mut call = Vec::new();
        // A call that begins near the end of its lease would still run when another node may claim.
        let lease_end_min = step.mono().saturating_add(self.settings.lease / 4);
        while call.len() < batch {
            let free = slots.saturating_sub(self.calls.messages() + call.len());
            if free == 0 {
                break;
            }
            // Parked messages first.
            if let Some(job) = self.destinations.unpark(free, slots, step.mono()) {
                self.claims.wait_first(job);
            }
            let Some(job) = self.claims.first_waiting() else { break };
            let Some(claim) = self.claims.get(job) else {
                self.claims.pop_waiting();
                continue;
            };
            if claim.is_alone() && !call.is_empty() {
                break;
            }
            let DeliveryTerms { message, destination, .. } = claim.terms;
            let (alone, is_suspect) = (claim.is_alone(), claim.is_suspect());
            let decision = triage(step.now.wall(), &claim.terms, &self.settings.retry);
            let lease_ends = claim.ends_by(lease_end_min);
            let attempt = claim.unknown_at(step.now.wall());
            self.claims.pop_waiting();
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
                Admission::Go { is_trial, is_newcomer } => {
                    let sent_at = step.mono();
                    call.push(SentMessage { job, message, destination, is_trial, is_newcomer, sent_at });
                    if alone {
                        break;
                    }
                }
                Admission::Park { is_newcomer: true } => self.destinations.park_newcomer(job, step.mono()),
                Admission::Park { is_newcomer: false } => {
                    self.destinations.park(destination, job, step.mono())
                }
                Admission::Defer(deferral) => self.retry_uncounted(job, deferral, step),
                Admission::Deny { detail } => {
                    self.release_token(job);
                    self.settle_result(job, AttemptResult::failed(Outcome::Denied, detail), step);
                }
            }
        }
        call
    }

    /// Handlers have no destinations.
    fn admit(&mut self, message: Candidate, free: usize, under_way: usize, now: Now) -> Admission {
        match self.settings.worker {
            LaneWorker::Sink => self.destinations.admit(message, free, under_way, now),
            LaneWorker::Handler { .. } => Admission::Go { is_trial: false, is_newcomer: false },
        }
    }

    /// Defers a message that was not sent: it is retried, and no attempt is counted. Its history gets the reason, or the unknown outcome of
    /// an earlier call within the claim. (`Settlement::Defer` adds nothing to the history.)
    fn retry_uncounted(&mut self, job: Job, deferral: Deferral, step: &mut Step<'_>) {
        let Deferral { at, outcome, detail } = deferral;
        let now = step.now.wall();
        let unknown = self.claims.get(job).and_then(|claim| claim.unknown_at(now));
        let attempt = unknown.unwrap_or_else(|| Attempt::new(now, outcome, detail));
        self.release_token(job);
        step.shared.settle_queue.push(job, Settlement::Retry { at, attempt });
    }

    /// Defers messages that were parked for too long: their destination is too slow.
    pub(super) fn defer_overdue(&mut self, step: &mut Step<'_>) {
        self.destinations.disarm();
        for (job, deferral) in self.destinations.overdue(step.now) {
            self.retry_uncounted(job, deferral, step);
        }
        self.arm_parked(step);
    }

    fn arm_parked(&mut self, step: &mut Step<'_>) {
        if let Some(at) = self.destinations.arm() {
            step.shared.wheel.set(at, Timer::Parked(self.key));
        }
    }

    /// Results of a call are known. A call that was cancelled before is ignored.
    pub(super) fn apply_results(
        &mut self,
        serial: u64,
        results: Vec<(usize, AttemptResult)>,
        is_over: bool,
        step: &mut Step<'_>,
    ) {
        let results = self.calls.record(serial, results, is_over, step.mono());
        self.settle_results(results, step);
        self.timeouts.drop_ended(|serial| self.calls.contains(serial));
    }

    /// Settles refusals that have waited long enough for the rest of their calls.
    pub(super) fn settle_refusals(&mut self, step: &mut Step<'_>) {
        let refused = self.calls.overdue_refusals(step.mono());
        if !refused.is_empty() {
            self.settle_results(CallResults::PerMessage(refused), step);
        }
        if let Some(at) = self.calls.refusals_until() {
            self.wake(at, step);
        }
    }

    /// Cancels calls that have timed out.
    pub(super) fn time_out(&mut self, step: &mut Step<'_>) {
        self.timeouts.disarm();
        while let Some(serial) = self.timeouts.pop_overdue(step.mono()) {
            let detail = format!("no answer within {:?}", self.settings.timeout);
            let result = match self.settings.worker {
                LaneWorker::Sink => AttemptResult::no_answer(detail),
                LaneWorker::Handler { .. } => AttemptResult::failed(Outcome::Failed, detail),
            };
            self.give_up(serial, &result, step);
        }
        self.arm_timeout(step);
    }

    /// Cancels a call: `result` is that of every message without one.
    pub(super) fn give_up(&mut self, serial: u64, result: &AttemptResult, step: &mut Step<'_>) {
        if self.calls.contains(serial) {
            step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
            let results = self.calls.give_up(serial, result, step.mono());
            self.settle_results(results, step);
        }
    }

    /// The same, without retrying messages one by one.
    pub(super) fn give_up_each(&mut self, serial: u64, result: &AttemptResult, step: &mut Step<'_>) {
        step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
        let results = self.calls.give_up(serial, result, step.mono()).into_results();
        self.settle_results(CallResults::PerMessage(results), step);
    }

    fn arm_timeout(&mut self, step: &mut Step<'_>) {
        if let Some(timeout_at) = self.timeouts.arm() {
            step.shared.wheel.set(timeout_at, Timer::Timeout(self.key));
        }
    }

    /// Settles the messages of a call by their results.
    fn settle_results(&mut self, results: CallResults, step: &mut Step<'_>) {
        let (results, is_whole) = match results {
            CallResults::PerMessage(results) => (results, false),
            CallResults::Whole(results) => (results, true),
        };
        self.update_destinations(&results, step);
        let outage_end = self.update_breaker(&results, step);
        if is_whole {
            return self.retry_one_by_one(results);
        }
        for (sent, result) in results {
            let at = self.retry_at(sent, &result, outage_end, step.now);
            self.settle_at(sent.job, result, at, step);
        }
    }

    /// When a message whose failure does not count is retried: when its destination, or the whole target, is.
    fn retry_at(
        &mut self,
        sent: SentMessage,
        result: &AttemptResult,
        outage_end: Timestamp,
        now: Now,
    ) -> Timestamp {
        match result {
            AttemptResult::Failed { outcome, scope: ErrorScope::Destination, .. } if !outcome.counts() => {
                let until = self.destinations.open_until(sent.destination);
                self.destinations.defer_to(sent.destination, until, now)
            }
            _ => outage_end,
        }
    }

    fn settle_result(&mut self, job: Job, result: AttemptResult, step: &mut Step<'_>) {
        self.settle_at(job, result, step.now.wall(), step);
    }

    /// Settles a message by its result.
    fn settle_at(&mut self, job: Job, result: AttemptResult, outage_end: Timestamp, step: &mut Step<'_>) {
        // The lease is lost: the message is delivered again, and this result is ignored.
        let Some(claim) = self.claims.get(job) else { return };
        let wall = step.now.wall();
        let settlement = match (&result, claim.unknown_at(wall)) {
            (AttemptResult::Failed { outcome, .. }, Some(attempt)) if !outcome.counts() => {
                Settlement::Retry { at: outage_end, attempt }
            }
            (AttemptResult::Failed { outcome: Outcome::Denied, detail, .. }, Some(attempt)) => {
                let random = step.shared.random.draw();
                let result = AttemptResult::failed(
                    Outcome::Unknown,
                    format!("{}; then denied: {detail}", attempt.detail),
                );
                settlement_of(wall, &self.settings, &claim.terms, result, outage_end, random)
            }
            _ => {
                let random = step.shared.random.draw();
                settlement_of(wall, &self.settings, &claim.terms, result, outage_end, random)
            }
        };
        step.shared.settle_queue.push(job, settlement);
    }

    /// One message may have failed the whole call: each is sent alone before an attempt counts.
    fn retry_one_by_one(&mut self, results: Vec<(SentMessage, AttemptResult)>) {
        for (SentMessage { job, .. }, result) in results.into_iter().rev() {
            let Some(claim) = self.claims.get_mut(job) else { continue };
            let unknown = match result {
                AttemptResult::Failed { outcome: Outcome::Unknown, detail, .. } => Some(detail),
                _ => None,
            };
            claim.retry_alone(unknown);
            self.claims.wait_first(job);
        }
    }

    /// Updates the breakers of destinations.
    fn update_destinations(&mut self, results: &[(SentMessage, AttemptResult)], step: &mut Step<'_>) {
        if self.settings.worker != LaneWorker::Sink {
            return;
        }
        for (sent, result) in results {
            let SentMessage { job, message, destination: key, is_trial, .. } = *sent;
            if let AttemptResult::Delivered { .. } = result {
                self.destinations.delivered(sent, step.mono());
            }
            let cause = match result {
                AttemptResult::Failed {
                    outcome: Outcome::Unknown,
                    detail,
                    scope: ErrorScope::Destination,
                    ..
                } => {
                    let is_enough = self.destinations.record_no_answer(key, message, is_trial);
                    is_enough.then(|| (Outcome::Unreachable, detail.clone()))
                }
                AttemptResult::Failed {
                    outcome: Outcome::Denied,
                    detail,
                    scope: ErrorScope::Destination,
                    ..
                } => self.denied_cause(sent, detail, step),
                AttemptResult::Failed { outcome, detail, scope: ErrorScope::Destination, .. }
                    if !matches!(outcome, Outcome::Refused) =>
                {
                    let is_evidence = self.destinations.is_evidence(key, is_trial);
                    is_evidence.then(|| (*outcome, detail.clone()))
                }
                // A failure of the connection says nothing about the destination.
                AttemptResult::Failed { outcome, .. }
                    if !outcome.counts() || *outcome == Outcome::Unknown =>
                {
                    None
                }
                AttemptResult::Delivered { .. } | AttemptResult::Failed { .. } => {
                    let is_closed = self.destinations.answered(key);
                    report_closed(is_closed, sent, step);
                    None
                }
            };
            if let Some(cause) = cause {
                self.trip_destination(job, key, cause, retry_after_of(result), step);
            }
            let has_answered = !matches!(result, AttemptResult::Failed { outcome: Outcome::Unknown, .. });
            self.destinations.ended(sent, has_answered, step.mono());
        }
    }

    /// Why a denial opens the breaker of its destination, if it does. One denied message says nothing about others: the
    /// destination answers.
    fn denied_cause(
        &mut self,
        sent: &SentMessage,
        detail: &str,
        step: &mut Step<'_>,
    ) -> Option<(Outcome, String)> {
        let SentMessage { message, destination: key, is_trial, .. } = *sent;
        if !self.destinations.is_evidence(key, is_trial) {
            return None;
        }
        if self.destinations.record_denied(key, message) {
            return Some((Outcome::Denied, detail.to_owned()));
        }
        let is_closed = self.destinations.close(key);
        report_closed(is_closed, sent, step);
        None
    }

    fn trip_destination(
        &mut self,
        job: Job,
        destination: u64,
        cause: (Outcome, String),
        retry_after: Option<Duration>,
        step: &mut Step<'_>,
    ) {
        let detail = cause.1.clone();
        let random = &mut step.shared.random;
        let (until, is_new) =
            self.destinations.trip(destination, cause, retry_after, step.now.mono(), random);
        if is_new {
            let report = Report::DestinationOpened { job, destination, until, detail };
            step.actions.push(Action::Report(report));
        }
    }

    /// Updates the breaker of the target. Returns when an unreachable target is tried again.
    fn update_breaker(&mut self, results: &[(SentMessage, AttemptResult)], step: &mut Step<'_>) -> Timestamp {
        let wall = step.now.wall();
        if self.settings.worker != LaneWorker::Sink || results.is_empty() {
            return wall;
        }
        let results = || results.iter().map(|(_, result)| result);
        let outage = |result: &&AttemptResult| matches!(result, AttemptResult::Failed { outcome, scope: ErrorScope::Target, .. } if !outcome.counts());
        let unknown = |result: &AttemptResult| {
            matches!(result, AttemptResult::Failed { outcome: Outcome::Unknown, .. })
        };
        let trying = self.breaker.allows() == Allow::One;
        let culprit = results()
            .filter(outage)
            .max_by_key(|result| retry_after_of(result))
            .or_else(|| results().next().filter(|_| trying && results().all(unknown)));
        if let Some(culprit @ AttemptResult::Failed { detail, .. }) = culprit {
            let until = self.trip(retry_after_of(culprit), detail.clone(), step);
            return wall.saturating_add(until.since(step.mono()));
        }
        if self.breaker.close_after_success() {
            step.actions.push(Action::Report(Report::BreakerClosed { lane: self.key }));
        }
        wall
    }

    /// Opens the breaker.
    pub(super) fn trip(
        &mut self,
        retry_after: Option<Duration>,
        detail: String,
        step: &mut Step<'_>,
    ) -> Monotonic {
        let known = self.breaker.probe_at();
        self.last_error = Some(detail.clone());
        let until = self.breaker.trip(step.mono(), retry_after, &mut step.shared.random);
        if known != Some(until) {
            step.shared.wheel.set(until, Timer::Probe(self.key));
            step.actions.push(Action::Report(Report::BreakerOpened { lane: self.key, until, detail }));
        }
        until
    }

    /// Probes the target, at the breaker's time or when an operator asks.
    pub(super) fn probe(&mut self, asked: bool, step: &mut Step<'_>) {
        if self.breaker.probe_at().is_some_and(|at| asked || at <= step.mono()) {
            let until = step.mono().saturating_add(self.settings.timeout);
            self.breaker.probing(until);
            step.shared.wheel.set(until, Timer::Unanswered(self.key));
            step.actions.push(Action::Probe { lane: self.key });
        }
    }

    /// A probe without an answer counts as a failure.
    pub(super) fn unanswered(&mut self, step: &mut Step<'_>) {
        if self.breaker.is_unanswered(step.mono()) {
            let detail = format!("no answer to a probe within {:?}", self.settings.timeout);
            self.trip(None, detail, step);
        }
    }
}

fn report_closed(is_closed: bool, sent: &SentMessage, step: &mut Step<'_>) {
    if is_closed {
        let report = Report::DestinationClosed { job: sent.job, destination: sent.destination };
        step.actions.push(Action::Report(report));
    }
}

fn retry_after_of(result: &AttemptResult) -> Option<Duration> {
    match result {
        AttemptResult::Failed { retry_after, .. } => *retry_after,
        AttemptResult::Delivered { .. } => None,
    }
}
