//! Counts and publishes settlements and reports.

use std::{collections::HashMap, time::Duration};

use duly_core::{
    Delivery, Now,
    schedule::{Job, LaneKey, Report},
    store::{LeasedMessage, Settled, Settlement},
};

use super::{Driver, Worker, driver::ClaimedMessage, outage_log::OutageLog, worker::destination_of};
use crate::{counters::add, events::Event};

impl Driver {
    /// Removes settled claims, counts and publishes them. Returns the jobs whose leases were lost.
    pub(super) fn settled(&mut self, batch: &[(Job, Settlement)], results: &[Settled], now: Now) -> Vec<Job> {
        let mut lost = Vec::new();
        let mut delivered: HashMap<LaneKey, Vec<Delivery>> = HashMap::new();
        for ((job, settlement), settled) in batch.iter().zip(results) {
            let Some(claimed) = self.in_flight.remove(job) else { continue };
            // An unknown result ends the claim of this process, too.
            if *settled != Settled::Done {
                lost.push(*job);
                continue;
            }
            let ClaimedMessage { leased, late_us, .. } = claimed;
            if *settlement == Settlement::Release {
                // A receiver may wait for a message that a handler released.
                self.parts.hints.push(leased.message.lane(), now.wall());
            }
            let late = Duration::from_micros(late_us);
            // A lane exists as long as it has claims.
            if let Some(served) = self.lanes.get(&job.lane) {
                self.parts.events.settled(
                    &served.counters,
                    &leased.message,
                    leased.attempt,
                    late,
                    settlement,
                );
                if matches!((settlement, &served.worker), (Settlement::Delivered { .. }, Worker::Sink(..))) {
                    let LeasedMessage { message, attempt, fence, .. } = leased;
                    let delivery = Delivery { message, attempt, fence };
                    delivered.entry(job.lane).or_default().push(delivery);
                }
            }
        }
        for (lane, delivered) in delivered {
            self.notify_sink(lane, delivered);
        }
        lost
    }

    /// Tells the sink that these messages are not retried.
    fn notify_sink(&self, lane: LaneKey, delivered: Vec<Delivery>) {
        if let Some(Worker::Sink(sink, _)) = self.lanes.get(&lane).map(|served| served.worker.clone()) {
            tokio::spawn(async move { sink.settled(&delivered).await });
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        let event = match report {
            Report::ClockJumped { by_us } => {
                tracing::warn!(by_us, "wall clock jumped");
                add(&self.parts.events.counters.engine.clock_jumps, 1);
                Event::ClockJumped { by_us }
            }
            Report::BreakerOpened { lane, detail, .. } => {
                let now = self.parts.clock.now().mono();
                let Some(served) = self.lanes.get_mut(&lane) else { return };
                let lane = served.lane.clone();
                match &mut served.outage {
                    None => {
                        tracing::warn!(%lane, detail, "sink unreachable");
                        served.outage = Some(OutageLog::new(now));
                    }
                    Some(outage) => {
                        if let Some(lasted) = outage.again(now) {
                            let minutes = lasted.as_secs() / 60;
                            tracing::warn!(%lane, detail, minutes, "sink still unreachable");
                        }
                    }
                }
                Event::SinkUnreachable { lane, detail }
            }
            Report::BreakerClosed { lane } => {
                let Some(served) = self.lanes.get_mut(&lane) else { return };
                let lane = served.lane.clone();
                served.outage = None;
                tracing::info!(%lane, "sink recovered");
                Event::SinkRecovered { lane }
            }
            Report::DestinationOpened { job, detail, .. } => {
                let Some((lane, destination)) = self.destination_of(job) else { return };
                tracing::warn!(%lane, destination, error = detail, "destination unreachable");
                Event::DestinationUnreachable { lane, destination, detail }
            }
            Report::DestinationClosed { job, .. } => {
                let Some((lane, destination)) = self.destination_of(job) else { return };
                tracing::info!(%lane, destination, "destination recovered");
                Event::DestinationRecovered { lane, destination }
            }
            Report::LeasesLost { count, .. } => {
                tracing::warn!(count, "lease lost");
                add(&self.parts.events.counters.engine.leases_lost, count);
                Event::LeasesLost { count }
            }
            Report::StoreFailing { times } => Event::StoreFailing { times },
        };
        self.parts.events.publish(event);
    }

    /// The destination of a claimed message, and its lane.
    fn destination_of(&self, job: Job) -> Option<(duly_core::Lane, String)> {
        let served = self.lanes.get(&job.lane)?;
        let Worker::Sink(sink, _) = &served.worker else { return None };
        let destination = destination_of(&**sink, &self.in_flight.get(&job)?.leased.message).into_owned();
        Some((served.lane.clone(), destination))
    }
}
