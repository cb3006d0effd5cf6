//! Performs the actions of the scheduler.

use std::sync::Arc;

use duly_core::{
    Clock, Delivery, Lane, Monotonic, Sink, SinkError,
    schedule::{Action, AttemptResult, DeliveryKey, Job, LaneKey},
    store::{Claim, Claimed, Holder, Settle, Settlement, StoreError, StoreErrorKind},
};

use tracing::Instrument;

use super::{
    Completion, Driver, Worker,
    attempt_results::{AttemptResults, deliver},
    catch_panic,
    driver::RunningCall,
    in_store::AfterDelivery,
    reply::ReplyOnDrop,
    worker::{HandlerFn, run_as_handler},
};
use crate::{
    counters::LaneCounters,
    store_monitor::CallKind,
    task::{LeaseLostSignal, Task},
    trace::{DeliverSpans, Spans},
};

impl Driver {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Claim { lane, limit, in_store_max, lease } => {
                self.claim(lane, limit, in_store_max, lease)
            }
            Action::Deliver { delivery, jobs } => self.deliver(delivery, jobs),
            Action::Abandon { delivery } => {
                if let Some(running) = self.running.remove(&delivery) {
                    if let Some(served) = self.lanes.get(&delivery.lane) {
                        let took = self.parts.clock.now().mono().since(running.began);
                        served.counters.calls.record(micros(took));
                    }
                    // A handler that blocks its thread cannot be cancelled, only signalled.
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
                // Dropping its senders wakes the callers.
                self.lanes.remove(&lane);
            }
            Action::Report(report) => self.report(report),
        }
    }

    fn reply(&self, otherwise: Completion) -> ReplyOnDrop {
        ReplyOnDrop::new(self.parts.inputs.clone(), otherwise)
    }

    fn claim(&mut self, key: LaneKey, limit: usize, in_store_max: usize, lease: std::time::Duration) {
        let Some(served) = self.lanes.get(&key) else { return };
        let claim = Claim { lane: served.lane.clone(), limit, lease, holder: Holder::Process };
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let requested_at = clock.now().mono();
        let reply = self.reply(Completion::Claimed {
            lane: key,
            requested_at,
            delivered_in_store: 0,
            result: Err(panicked()),
        });
        let in_store_claim = self.in_store_claim(served, in_store_max);
        let call = self.parts.events.monitor.begin(CallKind::Claim, requested_at);
        let spans = self.parts.spans.clone();
        tokio::spawn(async move {
            let (delivered_in_store, claimed) = match in_store_claim {
                Some(in_store_claim) => in_store_claim.deliver_then(claim).await,
                None => (0, Ok(AfterDelivery::Claim(claim))),
            };
            let now = clock.now();
            let result = match claimed {
                Ok(AfterDelivery::Claim(claim)) => {
                    spans.run_claim(&*store, now, claim).await.or_else(|error| {
                        // Messages delivered in the store are delivered although the claim failed. A repeated failure shows
                        // at the next claim.
                        if delivered_in_store > 0 {
                            Ok(Claimed { messages: Vec::new(), next: Some(now.wall()) })
                        } else {
                            Err(error)
                        }
                    })
                }
                Ok(AfterDelivery::Done(claimed)) => Ok(claimed),
                Err(error) => Err(error),
            };
            drop(call);
            reply.send(Completion::Claimed {
                lane: key,
                requested_at: now.mono(),
                delivered_in_store,
                result,
            });
        });
    }

    fn deliver(&mut self, delivery: DeliveryKey, jobs: Vec<Job>) {
        let now = self.parts.clock.now();
        let Some(served) = self.lanes.get(&delivery.lane) else { return };
        let (worker, counters) = (served.worker.clone(), served.counters.clone());
        for job in &jobs {
            let Some(claimed) = self.in_flight.get_mut(job) else { continue };
            claimed.late_us = now.wall_micros().saturating_sub(claimed.leased.ready.as_millis() * 1000);
            self.parts.events.counters.began(&counters, &claimed.leased.message.topic, claimed.late_us);
        }
        let watch = Watch { clock: self.parts.clock.clone(), began: now.mono(), counters };
        match worker {
            Worker::Sink(sink, _) => self.call_sink(sink, delivery, &jobs, watch),
            Worker::Handler(handler) => {
                jobs.iter().for_each(|job| self.call_handler(&handler, delivery, *job, watch.clone()));
            }
        }
    }

    fn call_sink(&mut self, sink: Arc<dyn Sink>, delivery: DeliveryKey, jobs: &[Job], watch: Watch) {
        let mut batch: Vec<Delivery> = jobs
            .iter()
            .filter_map(|job| {
                let leased = &self.in_flight.get(job)?.leased;
                let (message, attempt) = (leased.message.clone(), leased.attempt);
                Some(Delivery { message, attempt, fence: leased.fence.clone() })
            })
            .collect();
        let spans = DeliverSpans::begin(&self.parts.spans, &mut batch);
        let results = AttemptResults::new(delivery);
        let reply = self.reply(Completion::CallEnded { delivery, results: results.clone() });
        let (began, inputs) = (watch.began, self.parts.inputs.clone());
        let call = tokio::spawn(async move {
            deliver(&*sink, &batch, &spans, (&results, &inputs)).await;
            watch.ended();
            drop(reply);
        });
        self.running.insert(delivery, RunningCall { call: call.abort_handle(), began, lease_lost: None });
    }

    fn call_handler(&mut self, handler: &Arc<HandlerFn>, delivery: DeliveryKey, job: Job, watch: Watch) {
        let Some(claimed) = self.in_flight.get_mut(&job) else { return };
        let lease_lost = Arc::new(LeaseLostSignal::default());
        claimed.lease_lost = Some(lease_lost.clone());
        let task = Task::new(&claimed.leased, lease_lost.clone());
        let span = self.parts.spans.deliver(&claimed.leased.message, claimed.leased.attempt);
        let handler = handler.clone();
        let results = AttemptResults::new(delivery);
        let reply = self.reply(Completion::CallEnded { delivery, results: results.clone() });
        let (began, whose) = (watch.began, self.parts.identity());
        let call = tokio::spawn(async move {
            let handled = run_as_handler(whose, async move { handler(task).await });
            let result = catch_panic(handled.instrument(span.span.clone())).await;
            watch.ended();
            let result =
                result.unwrap_or_else(|panic| AttemptResult::failed(duly_core::Outcome::Failed, panic));
            span.end(&result);
            results.push(0, result);
            drop(reply);
        });
        self.running
            .insert(delivery, RunningCall { call: call.abort_handle(), began, lease_lost: Some(lease_lost) });
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
        let call = self.parts.events.monitor.begin(CallKind::Settle, clock.now().mono());
        let in_flight = batch.iter().filter_map(|(job, _)| self.in_flight.get(job));
        let span = self.parts.spans.settle(batch.len(), in_flight.map(|claimed| &claimed.leased.message));
        tokio::spawn(async move {
            let result = Spans::run_settle(span, store.settle(clock.now(), settles)).await;
            drop(call);
            reply.send(Completion::Settled { settle, batch, result });
        });
    }

    fn extend(&mut self, jobs: Vec<Job>, lease: std::time::Duration) {
        let claimed = |job: &Job| Some((*job, self.in_flight.get(job)?.leased.receipt.clone()));
        let (jobs, receipts): (Vec<_>, Vec<_>) = jobs.iter().filter_map(claimed).unzip();
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let requested_at = clock.now();
        let failed = Completion::Extended {
            jobs: jobs.clone(),
            requested_at: requested_at.mono(),
            result: Err(panicked()),
        };
        let reply = self.reply(failed);
        let call = self.parts.events.monitor.begin(CallKind::Extend, requested_at.mono());
        tokio::spawn(async move {
            let result = store.extend(requested_at, &receipts, lease).await;
            drop(call);
            reply.send(Completion::Extended { jobs, requested_at: requested_at.mono(), result });
        });
    }

    fn sweep(&mut self, keys: Vec<LaneKey>) {
        let lanes: Vec<Lane> =
            keys.iter().filter_map(|key| Some(self.lanes.get(key)?.lane.clone())).collect();
        let (store, clock) = (self.parts.store.clone(), self.parts.clock.clone());
        let call = self.parts.events.monitor.begin(CallKind::Sweep, clock.now().mono());
        let reply = self.reply(Completion::Swept { result: Err(panicked()) });
        tokio::spawn(async move {
            let result = store.sweep(clock.now(), &lanes).await;
            drop(call);
            reply.send(Completion::Swept { result });
        });
    }

    fn probe(&mut self, lane: LaneKey) {
        let Some(Worker::Sink(sink, _)) = self.lanes.get(&lane).map(|served| served.worker.clone()) else {
            return;
        };
        let panicked = SinkError::unreachable("the sink panicked while probing");
        let reply = self.reply(Completion::Probed { lane, result: Err(panicked) });
        tokio::spawn(async move {
            let result = sink.probe().await;
            reply.send(Completion::Probed { lane, result });
        });
    }
}

/// Measures the duration of a call.
#[derive(Clone)]
struct Watch {
    clock: Arc<dyn Clock>,
    began: Monotonic,
    counters: Arc<LaneCounters>,
}

impl Watch {
    fn ended(self) {
        self.counters.calls.record(micros(self.clock.now().mono().since(self.began)));
    }
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn panicked() -> StoreError {
    StoreError::new(StoreErrorKind::Unanswered, "the store panicked; what it did is unknown")
}
