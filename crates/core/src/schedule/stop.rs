//! A clean stop: what runs may finish, the rest is handed back.

use super::{
    Action, AttemptResult, DeliveryKey, Work,
    lane::{Lane, Step, Timer},
};
use crate::{Monotonic, Outcome};

impl Lane {
    /// No more claims; what runs has until `grace_end`.
    pub(super) fn stop(&mut self, grace_end: Monotonic, step: &mut Step<'_>) {
        self.gate.is_stopping = true;
        step.shared.wheel.set(grace_end, Timer::Grace(self.key));
    }

    /// The time of grace is over: what still runs is given up.
    pub(super) fn end_grace(&mut self, step: &mut Step<'_>) {
        if !self.gate.is_stopping {
            return;
        }
        for serial in self.calls.with(|_| true) {
            match self.settings.work {
                Work::Handler { .. } => {
                    step.actions.push(Action::Abandon { delivery: DeliveryKey { lane: self.key, serial } });
                    let given_up =
                        self.calls.give_up(serial, &AttemptResult::failed(Outcome::Failed, ""), step.mono());
                    given_up.into_jobs().for_each(|job| self.release(job, step));
                }
                // A call to a target cannot be taken back: its outcome is unknown, and that is recorded.
                Work::Sink => {
                    let end = AttemptResult::failed(Outcome::Unknown, "stopped before the target answered");
                    self.give_up_each(serial, &end, step);
                }
            }
        }
    }
}
