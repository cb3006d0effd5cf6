//! Performing what the scheduler decided.

use std::sync::Arc;

use duly_core::{
    Clock, Delivery, Lane, Monotonic, Sink, SinkError, SinkErrorKind,
    schedule::{Action, AttemptResult, DeliveryKey, Job, LaneKey},
    store::{Claim, Claimed, Holder, Settle, Settlement, StoreError, StoreErrorKind},
};

use super::{
    Completion, Driver, Worker,
    attempt_results::{AttemptResults, deliver},
    caught,
    driver::Running,
    in_store::Before,
    reply::ReplyOnDrop,
    work::{Handle, as_handler},
};
use crate::{
    tally::LaneTally,
    task::{LeaseLostSignal, Task},
};

impl Driver {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Claim { lane, limit, movable, lease } => self.claim(lane, limit, movable, lease),
            Action::Deliver { delivery, jobs } => self.deliver(delivery, jobs),
            Action::Abandon { delivery } => {
                if let Some(running) = self.running.remove(&delivery) {
                    if let Some(served) = self.lanes.get(&delivery.lane) {
                        let took = self.parts.clock.now().mono().since(running.began);
                        served.tally.calls.record(micros(took));
                    }
                    // A handler that blocks its thread cannot be ended, only told.
                    running.lease_lost.iter().for_each(|lease_lost| lease_lost.lose());
                    running.call.abort();
                }
            }
            Action::Settle { settle, batch } => self.settle(settle, batch),
            Action::Extend { jobs, lease } => self.extend(jobs, lease),
            Action::Forget { jobs } => {
                for lease_lost in jobs.iter().filter_map(|job| self.in_flight.remove(job)?.lease_lost) {
                    lease_lost.lose();
                }
            }
            Action::Sweep { lanes } => self.sweep(lanes),
            Action::Probe { lane } => self.probe(lane),
            Action::LaneRemoved { lane } => {
                // Dropping them tells whoever waits.
                self.lanes.remove(&lane);
            }
            Action::Report(report) => self.report(report),
        }
    }

    fn reply(&self, otherwise: Completion) -> ReplyOnDrop {
        ReplyOnDrop::new(self.parts.inputs.clone(), otherwise)
    }

    fn claim(&mut self, key: LaneKey, limit: usize, movable: usize, lease: std::time::Duration) {
        let Some(served) = self.lanes.get(&key) else { return };
        let claim = Claim { lane: served.lane.clone(), limit, lease, holder: Holder::Process };
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let asked = clock.now().mono();
        let reply = self.reply(Completion::Claimed { lane: key, asked, moved: 0, result: Err(panicked()) });
        let moving = self.moving(served, movable);
        tokio::spawn(async move {
            let (moved, claimed) = match moving {
                Some(moving) => moving.before(claim).await,
                None => (0, Ok(Before::Claim(claim))),
            };
            let now = clock.now();
            let result = match claimed {
                Ok(Before::Claim(claim)) => store.claim(now, claim).await.or_else(|error| {
                    // What was moved is delivered whatever became of the claim. The next one tells, if it fails too.
                    if moved > 0 {
                        Ok(Claimed { messages: Vec::new(), next: Some(now.wall()) })
                    } else {
                        Err(error)
                    }
                }),
                Ok(Before::Done(claimed)) => Ok(claimed),
                Err(error) => Err(error),
            };
            reply.send(Completion::Claimed { lane: key, asked: now.mono(), moved, result });
        });
    }

    fn deliver(&mut self, delivery: DeliveryKey, jobs: Vec<Job>) {
        let now = self.parts.clock.now();
        let Some(served) = self.lanes.get(&delivery.lane) else { return };
        let (worker, tally) = (served.worker.clone(), served.tally.clone());
        for job in &jobs {
            let Some(claimed) = self.in_flight.get_mut(job) else { continue };
            claimed.late_us = now.wall_micros().saturating_sub(claimed.leased.ready.as_millis() * 1000);
            self.parts.events.tally.began(&tally, &claimed.leased.message.topic, claimed.late_us);
        }
        let watch = Watch { clock: self.parts.clock.clone(), began: now.mono(), tally };
        match worker {
            Worker::Sink(sink, _) => self.call_sink(sink, delivery, &jobs, watch),
            Worker::Handler(handle) => {
                jobs.iter().for_each(|job| self.call_handler(&handle, delivery, *job, watch.clone()));
            }
        }
    }

    fn call_sink(&mut self, sink: Arc<dyn Sink>, delivery: DeliveryKey, jobs: &[Job], watch: Watch) {
        let batch: Vec<Delivery> = jobs
            .iter()
            .filter_map(|job| {
                let leased = &self.in_flight.get(job)?.leased;
                let (message, attempt) = (leased.message.clone(), leased.attempt);
                Some(Delivery { message, attempt, fence: leased.fence.clone() })
            })
            .collect();
        let results = AttemptResults::new(delivery);
        let reply = self.reply(Completion::Delivered { delivery, results: results.clone() });
        let (began, inputs) = (watch.began, self.parts.inputs.clone());
        let call = tokio::spawn(async move {
            deliver(&*sink, &batch, &results, &inputs).await;
            watch.ended();
            drop(reply);
        });
        self.running.insert(delivery, Running { call: call.abort_handle(), began, lease_lost: None });
    }

    fn call_handler(&mut self, handle: &Arc<Handle>, delivery: DeliveryKey, job: Job, watch: Watch) {
        let Some(claimed) = self.in_flight.get_mut(&job) else { return };
        let lease_lost = Arc::new(LeaseLostSignal::default());
        claimed.lease_lost = Some(lease_lost.clone());
        let task = Task::new(&claimed.leased, lease_lost.clone());
        let handle = handle.clone();
        let results = AttemptResults::new(delivery);
        let reply = self.reply(Completion::Delivered { delivery, results: results.clone() });
        let (began, whose) = (watch.began, self.parts.identity());
        let call = tokio::spawn(async move {
            let end = caught(as_handler(whose, async move { handle(task).await })).await;
            watch.ended();
            let end = end.unwrap_or_else(|panic| AttemptResult::failed(duly_core::Outcome::Failed, panic));
            results.push(0, end);
            drop(reply);
        });
        self.running
            .insert(delivery, Running { call: call.abort_handle(), began, lease_lost: Some(lease_lost) });
    }

    fn settle(&mut self, settle: u64, batch: Arc<[(Job, Settlement)]>) {
        let settles: Vec<Settle> = batch
            .iter()
            .filter_map(|(job, settlement)| {
                let receipt = self.in_flight.get(job)?.leased.receipt.clone();
                Some(Settle { receipt, settlement: settlement.clone() })
            })
            .collect();
        debug_assert_eq!(settles.len(), batch.len(), "the scheduler settles only what is held");
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let reply = self.reply(Completion::Settled { settle, batch: batch.clone(), result: Err(panicked()) });
        tokio::spawn(async move {
            let result = store.settle(clock.now(), settles).await;
            reply.send(Completion::Settled { settle, batch, result });
        });
    }

    fn extend(&mut self, jobs: Vec<Job>, lease: std::time::Duration) {
        let claimed = |job: &Job| Some((*job, self.in_flight.get(job)?.leased.receipt.clone()));
        let (jobs, receipts): (Vec<_>, Vec<_>) = jobs.iter().filter_map(claimed).unzip();
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let asked = clock.now();
        let failed =
            Completion::Extended { jobs: jobs.clone(), asked: asked.mono(), result: Err(panicked()) };
        let reply = self.reply(failed);
        tokio::spawn(async move {
            let result = store.extend(asked, &receipts, lease).await;
            reply.send(Completion::Extended { jobs, asked: asked.mono(), result });
        });
    }

    fn sweep(&mut self, keys: Vec<LaneKey>) {
        let lanes: Vec<Lane> =
            keys.iter().filter_map(|key| Some(self.lanes.get(key)?.lane.clone())).collect();
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        self.parts.events.observed.sweep_began(clock.now().mono());
        let reply = self.reply(Completion::Swept { result: Err(panicked()) });
        tokio::spawn(async move {
            let result = store.sweep(clock.now(), &lanes).await;
            reply.send(Completion::Swept { result });
        });
    }

    fn probe(&mut self, lane: LaneKey) {
        let Some(Worker::Sink(sink, _)) = self.lanes.get(&lane).map(|served| served.worker.clone()) else {
            return;
        };
        let panicked = SinkError::new(SinkErrorKind::Unreachable, "the sink panicked while probing");
        let reply = self.reply(Completion::Probed { lane, result: Err(panicked) });
        tokio::spawn(async move {
            let result = sink.probe().await;
            reply.send(Completion::Probed { lane, result });
        });
    }
}

/// Measures how long a call takes.
#[derive(Clone)]
struct Watch {
    clock: Arc<dyn Clock>,
    began: Monotonic,
    tally: Arc<LaneTally>,
}

impl Watch {
    fn ended(self) {
        self.tally.calls.record(micros(self.clock.now().mono().since(self.began)));
    }
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn panicked() -> StoreError {
    StoreError::new(StoreErrorKind::Unanswered, "the store panicked; what it did is unknown")
}
