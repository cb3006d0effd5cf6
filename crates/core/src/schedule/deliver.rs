//! Handing messages to a lane's sink or handler, and what comes of it.

use std::time::Duration;

use super::{
    Action, DeliveryKey, End, Job, Report, Triage, Work,
    breaker::Allow,
    lane::{Lane, Step, Timer},
    triage, verdict,
};
use crate::{Monotonic, Outcome, Timestamp, store::Verdict};

impl Lane {
    /// Hands over as much as the limits allow.
    pub(super) fn deliver(&mut self, step: &mut Step<'_>) {
        let (slots, batch) = match self.breaker.allows() {
            Allow::All => (self.settings.concurrency, self.settings.batch),
            Allow::One => (1, 1),
            Allow::Nothing => (0, 0),
        };
        while self.running.len() < slots && !self.buffer.is_empty() {
            let jobs = self.next_call(batch, step);
            if jobs.is_empty() {
                continue;
            }
            step.shared.serial += 1;
            let serial = step.shared.serial;
            let end = step.mono().saturating_add(self.settings.timeout);
            self.timeouts.push_back((end, serial));
            self.arm_timeout(step);
            let delivery = DeliveryKey { lane: self.key, serial };
            step.actions.push(Action::Deliver { delivery, jobs: jobs.clone() });
            self.running.insert(serial, jobs);
        }
    }

    /// Takes the next call's messages from the buffer, deciding about each at the last moment.
    fn next_call(&mut self, batch: usize, step: &mut Step<'_>) -> Vec<Job> {
        let mut jobs = Vec::new();
        // A call that begins near the end of its lease would still run when somebody else may claim.
        let lease_end_min = step.mono().saturating_add(self.settings.lease / 4);
        while jobs.len() < batch {
            let Some(&job) = self.buffer.front() else { break };
            let Some(held) = self.held.get(&job.serial) else {
                self.buffer.pop_front();
                continue;
            };
            if held.alone && !jobs.is_empty() {
                break;
            }
            let alone = held.alone;
            let decision = triage(step.now.wall(), &held.terms, &self.settings.retry);
            let lease_ends = held.lease_end <= lease_end_min;
            let attempt = held.unknown_at(step.now.wall());
            self.buffer.pop_front();
            match decision {
                Triage::Dead(reason) => {
                    step.shared.settling.push(job, Verdict::Dead { reason, attempt });
                }
                Triage::Early => self.hand_back(job, step),
                Triage::Deliver if lease_ends => self.hand_back(job, step),
                Triage::Deliver => jobs.push(job),
            }
            if alone {
                break;
            }
        }
        jobs
    }

    /// A call ended by itself. One that was given up before is ignored.
    pub(super) fn delivered(&mut self, serial: u64, ends: Vec<End>, step: &mut Step<'_>) {
        if let Some(jobs) = self.running.remove(&serial) {
            self.ended(jobs, ends, step);
        }
        while self.timeouts.front().is_some_and(|(_, serial)| !self.running.contains_key(serial)) {
            self.timeouts.pop_front();
        }
    }

    /// Gives up the calls whose time is over.
    pub(super) fn time_out(&mut self, step: &mut Step<'_>) {
        self.timeout_armed = false;
        while self.timeouts.front().is_some_and(|&(end, _)| end <= step.mono()) {
            let Some((_, serial)) = self.timeouts.pop_front() else { break };
            let Some(jobs) = self.running.remove(&serial) else { continue };
            step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
            let outcome = match self.settings.work {
                Work::Sink => Outcome::Unknown,
                Work::Handler { .. } => Outcome::Failed,
            };
            let end = End::not(outcome, format!("no answer within {:?}", self.settings.timeout));
            let ends = vec![end; jobs.len()];
            self.ended(jobs, ends, step);
        }
        self.arm_timeout(step);
    }

    fn arm_timeout(&mut self, step: &mut Step<'_>) {
        if let (false, Some(&(end, _))) = (self.timeout_armed, self.timeouts.front()) {
            self.timeout_armed = true;
            step.shared.wheel.set(end, Timer::Timeout(self.key));
        }
    }

    /// Judges the ends of a call, one by one.
    pub(super) fn ended(&mut self, jobs: Vec<Job>, mut ends: Vec<End>, step: &mut Step<'_>) {
        ends.resize(jobs.len(), End::not(Outcome::Unknown, "the sink gave no outcome for this message"));
        if failed_as_a_whole(&ends) {
            return self.again_one_by_one(jobs, &ends, step);
        }
        let outage_end = self.watch_target(&ends, step);
        for (job, end) in jobs.into_iter().zip(ends) {
            // A lost lease: the message comes again, this result means nothing.
            let Some(held) = self.held.get(&job.serial) else { continue };
            let wall = step.now.wall();
            let verdict = match (&end, held.unknown_at(wall)) {
                (End::Not { outcome, .. }, Some(attempt)) if !outcome.counts() => {
                    Verdict::Retry { at: outage_end, attempt }
                }
                _ => {
                    let random = step.shared.random.draw();
                    verdict(wall, &self.settings, &held.terms, end, outage_end, random)
                }
            };
            step.shared.settling.push(job, verdict);
        }
    }

    /// One bad message may have failed all: each tries alone before any attempt counts.
    fn again_one_by_one(&mut self, jobs: Vec<Job>, ends: &[End], step: &mut Step<'_>) {
        for (job, end) in jobs.into_iter().zip(ends).rev() {
            let Some(held) = self.held.get_mut(&job.serial) else { continue };
            held.alone = true;
            if let End::Not { outcome: Outcome::Unknown, detail, .. } = end {
                held.unknown = Some(detail.clone());
            }
            self.buffer.push_front(job);
        }
        let _ = self.watch_target(ends, step);
    }

    /// Lets the breaker see how a call went. Gives the time at which an absent target is tried again.
    fn watch_target(&mut self, ends: &[End], step: &mut Step<'_>) -> Timestamp {
        let wall = step.now.wall();
        if self.settings.work != Work::Sink {
            return wall;
        }
        let outage = |end: &&End| matches!(end, End::Not { outcome, .. } if !outcome.counts());
        let unknown = |end: &End| matches!(end, End::Not { outcome: Outcome::Unknown, .. });
        let trying = self.breaker.allows() == Allow::One;
        let culprit = ends
            .iter()
            .filter(outage)
            .max_by_key(|end| wish(end))
            .or_else(|| ends.first().filter(|_| trying && ends.iter().all(unknown)));
        if let Some(culprit @ End::Not { detail, .. }) = culprit {
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

fn wish(end: &End) -> Option<Duration> {
    match end {
        End::Not { retry_after, .. } => *retry_after,
        End::Done { .. } => None,
    }
}

/// Whether every message of a call failed in the same words for no reason of connection.
fn failed_as_a_whole(ends: &[End]) -> bool {
    let same = |end: &End| match (end, &ends[0]) {
        (
            End::Not { outcome: one, detail: words, .. },
            End::Not { outcome: first, detail: first_words, .. },
        ) => one == first && words == first_words && matches!(one, Outcome::Unknown | Outcome::Refused),
        _ => false,
    };
    ends.len() > 1 && ends.iter().all(same)
}
