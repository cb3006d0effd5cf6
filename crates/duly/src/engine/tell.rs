//! Telling the world what was recorded.

use std::time::Duration;

use duly_core::{
    Now,
    schedule::{Job, LaneKey, Report},
    store::{Settled, Verdict},
};

use super::Driver;
use crate::events::{Count, Event};

impl Driver {
    /// Lets go of what was settled, counts it and tells it. Gives those that were lost.
    pub(super) fn settled(&mut self, batch: &[(Job, Verdict)], results: &[Settled], now: Now) -> Vec<Job> {
        let mut lost = Vec::new();
        for ((job, verdict), settled) in batch.iter().zip(results) {
            let Some(held) = self.held.remove(job) else { continue };
            if *settled == Settled::Lost {
                lost.push(*job);
                continue;
            }
            let (leased, late) = (held.leased, Duration::from_micros(held.late_us));
            let lane = leased.message.lane();
            let (id, attempt) = (leased.message.id, leased.attempt);
            // A receiver may wait for what a handler gave back.
            let bell = &self.parts.bell;
            let event = match verdict {
                Verdict::Delivered { .. } => {
                    bell.count(Count::Delivered);
                    Event::Delivered { id, lane, attempt, lateness: late }
                }
                Verdict::Retry { at, attempt: tried } => {
                    bell.count(Count::Failed);
                    let (outcome, detail) = (tried.outcome, tried.detail.clone());
                    Event::Failed { id, lane, attempt, outcome, detail, retry_at: *at }
                }
                Verdict::Dead { reason, .. } => {
                    bell.count(Count::Dead);
                    Event::Dead { id, lane, reason: *reason }
                }
                Verdict::HandBack => {
                    self.parts.hints.tell(lane, now.wall());
                    continue;
                }
            };
            if bell.heard() {
                bell.ring(event);
            }
        }
        lost
    }

    pub(super) fn report(&mut self, report: Report) {
        let event = match report {
            Report::ClockJumped { by_us } => {
                tracing::warn!(by_us, "wall time jumped");
                Event::ClockJumped { by_us }
            }
            Report::BreakerOpened { lane, detail, .. } => {
                let Some(lane) = self.name(lane) else { return };
                tracing::warn!(%lane, detail, "the target is away; its messages wait");
                Event::TargetAway { lane, detail }
            }
            Report::BreakerClosed { lane } => {
                let Some(lane) = self.name(lane) else { return };
                tracing::info!(%lane, "the target is back");
                Event::TargetBack { lane }
            }
            Report::OutcomesLost { count } | Report::LeasesLost { count, .. } => {
                tracing::warn!(
                    count,
                    "leases ended before the outcomes were recorded; the messages come again"
                );
                Event::LeasesLost { count }
            }
            Report::StoreFailing { times } => Event::StoreFailing { times },
        };
        self.parts.bell.ring(event);
    }

    fn name(&self, lane: LaneKey) -> Option<duly_core::Lane> {
        Some(self.lanes.get(&lane)?.lane.clone())
    }
}
