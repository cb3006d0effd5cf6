//! Renewal of leases while messages are claimed.

use super::{
    Action, AttemptResult, Job, LaneWorker, Report,
    lane::{CrossLaneState, Lane, Step, Timer},
};
use crate::{Monotonic, Outcome};

/// Renewals per lease: two of them may fail before the lease is lost.
const CHECKS_PER_LEASE: u32 = 4;

impl Lane {
    pub(super) fn arm_renewal(&mut self, step: &mut Step<'_>) {
        if self.claims.arm_renewal() {
            let at = step.mono().saturating_add(self.settings.lease / CHECKS_PER_LEASE);
            step.shared.wheel.set(at, Timer::Renew(self.key));
        }
    }

    /// Renews leases that are not fresh, and drops claims whose lease has ended.
    pub(super) fn renew(&mut self, step: &mut Step<'_>) {
        self.claims.disarm_renewal();
        let now = step.mono();
        let fresh = now.saturating_add(self.settings.lease - self.settings.lease / CHECKS_PER_LEASE);
        let lost = self.claims.ending_by(self.key, now);
        let mut old = self.claims.ending_by(self.key, fresh);
        old.retain(|job| lost.binary_search(job).is_err());
        self.lose(lost, step);
        if !old.is_empty() {
            step.actions.push(Action::Extend { jobs: old, lease: self.settings.lease });
        }
        self.end_calls(step);
        self.arm_renewal(step);
    }

    /// Cancels calls of a sink whose leases could not be renewed, before they end: afterwards another node may deliver
    /// the same messages at the same time.
    fn end_calls(&mut self, step: &mut Step<'_>) {
        if self.settings.worker != LaneWorker::Sink {
            return;
        }
        // They end before the next renewal.
        let soon = step.mono().saturating_add(self.settings.lease / CHECKS_PER_LEASE);
        let ending = |job: &Job| self.claims.get(*job).is_some_and(|claim| claim.ends_by(soon));
        let serials = self.calls.with(ending);
        let result = AttemptResult::failed(
            Outcome::Unknown,
            "its lease could not be renewed before the target answered",
        );
        for serial in serials {
            self.give_up(serial, &result, step);
        }
    }

    /// The store answered a renewal.
    pub(super) fn extended(
        &mut self,
        jobs: &[Job],
        lost: &[Job],
        requested_at: Monotonic,
        step: &mut Step<'_>,
    ) {
        let end = requested_at.saturating_add(self.settings.lease);
        for job in jobs {
            if let Some(claim) = self.claims.get_mut(*job) {
                claim.extend(end);
            }
        }
        // A claim that is settled at the same time may be answered "lost" here.
        let lost =
            lost.iter().filter(|job| self.claims.contains(**job) && !step.shared.settle_queue.has(**job));
        let lost = lost.copied().collect();
        self.lose(lost, step);
    }

    fn lose(&mut self, lost: Vec<Job>, step: &mut Step<'_>) {
        if lost.is_empty() {
            return;
        }
        let report = Report::LeasesLost { lane: self.key, count: lost.len() };
        step.actions.push(Action::Report(report));
        self.forget(lost, step.shared, step.actions);
    }

    /// Drops claims that others may hold now.
    pub(super) fn forget(&mut self, jobs: Vec<Job>, shared: &mut CrossLaneState, actions: &mut Vec<Action>) {
        for job in &jobs {
            self.remove_claim(*job, shared);
        }
        actions.push(Action::Forget { jobs });
    }
}
