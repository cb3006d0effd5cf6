//! Graceful stop: running calls may finish, other claims are released.

use super::{
    Action, AttemptResult, DeliveryKey, LaneWorker,
    lane::{Lane, Step, Timer},
};
use crate::{Monotonic, Outcome};

impl Lane {
    /// Stops claiming. Running calls have until `grace_end`.
    pub(super) fn stop(&mut self, grace_end: Monotonic, step: &mut Step<'_>) {
        self.gate.stop();
        step.shared.wheel.set(grace_end, Timer::Grace(self.key));
    }

    /// The grace period is over: running calls are cancelled.
    pub(super) fn abort_running(&mut self, step: &mut Step<'_>) {
        if !self.gate.is_stopping() {
            return;
        }
        for serial in self.calls.with(|_| true) {
            match self.settings.worker {
                LaneWorker::Handler { .. } => {
                    step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
                    let given_up =
                        self.calls.give_up(serial, &AttemptResult::failed(Outcome::Failed, ""), step.mono());
                    given_up.into_jobs().for_each(|job| self.release(job, step));
                }
                // A call to a target cannot be undone: its outcome is unknown, and that is recorded.
                LaneWorker::Sink => {
                    let result =
                        AttemptResult::failed(Outcome::Unknown, "stopped before the target answered");
                    self.give_up_each(serial, &result, step);
                }
            }
        }
    }
}
