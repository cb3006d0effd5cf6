//! Leases are renewed while a message is in hand; a lost one is told.

use super::{
    Action, AttemptResult, Job, Report, Work,
    lane::{Lane, Shared, Step, Timer},
};
use crate::{Monotonic, Outcome};

/// A lease is looked at so many times in its span: two renewals may fail before it is lost.
const LOOKS: u32 = 4;

impl Lane {
    pub(super) fn arm_renewal(&mut self, step: &mut Step<'_>) {
        if !self.claims.is_renewal_armed && !self.claims.is_empty() {
            self.claims.is_renewal_armed = true;
            let at = step.mono().saturating_add(self.settings.lease / LOOKS);
            step.shared.wheel.set(at, Timer::Renew(self.key));
        }
    }

    /// Renews what has been in hand for a while, and lets go of what is surely lost.
    pub(super) fn renew(&mut self, step: &mut Step<'_>) {
        self.claims.is_renewal_armed = false;
        let now = step.mono();
        let fresh = now.saturating_add(self.settings.lease - self.settings.lease / LOOKS);
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

    /// Ends calls of a sink whose leases could not be renewed, while they still last: afterwards another node may deliver the
    /// same messages, and two of them at once is what leases are there to prevent.
    fn end_calls(&mut self, step: &mut Step<'_>) {
        if self.settings.work != Work::Sink {
            return;
        }
        // Until the next look they would have ended.
        let soon = step.mono().saturating_add(self.settings.lease / LOOKS);
        let ending = |job: &Job| self.claims.get(*job).is_some_and(|claim| claim.lease_end <= soon);
        let serials = self.calls.with(ending);
        let end = AttemptResult::failed(
            Outcome::Unknown,
            "its lease could not be renewed before the target answered",
        );
        for serial in serials {
            self.give_up(serial, &end, step);
        }
    }

    /// The store says how the renewal went.
    pub(super) fn extended(&mut self, jobs: &[Job], lost: &[Job], asked: Monotonic, step: &mut Step<'_>) {
        let end = asked.saturating_add(self.settings.lease);
        for job in jobs {
            if let Some(claim) = self.claims.get_mut(*job) {
                claim.lease_end = claim.lease_end.max(end);
            }
        }
        // What is being settled at the same time may be answered "lost" here, although it is just done.
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

    /// These are somebody else's now.
    pub(super) fn forget(&mut self, jobs: Vec<Job>, shared: &mut Shared, actions: &mut Vec<Action>) {
        for job in &jobs {
            self.remove_claim(*job, shared);
        }
        actions.push(Action::Forget { jobs });
    }
}
