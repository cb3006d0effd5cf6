//! The one task that owns the scheduler.

use std::{collections::HashMap, sync::Arc};

use duly_core::{
    Clock, Lane, Monotonic, Now, Sleep, Store,
    schedule::{Action, ClaimedJob, DeliveryKey, DeliveryTerms, Event, Job, LaneKey, Scheduler, Settings},
    store::{Claimed, LeasedMessage, Settled, StoreError, Sweep},
};
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::AbortHandle,
};

use super::{Command, Completion, Hints, Input, Worker, catch_panic, worker::destination_of};
use crate::{
    counters::{LaneCounters, add},
    events::EventBus,
    health::{HealthCache, Liveness},
    store_monitor::StoreCall,
    task::LeaseLostSignal,
    trace::Spans,
};

/// Inputs handled before hints are checked again.
const INPUTS_AT_ONCE: usize = 256;

/// State shared by the driver and `Duly`.
#[derive(Clone)]
pub(crate) struct EngineHandles {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) spans: Spans,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) health_cache: Arc<HealthCache>,
    pub(crate) inputs: UnboundedSender<Input>,
}

impl EngineHandles {
    /// Unique per Duly of the process.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.events) as usize
    }
}

/// A claimed message.
pub(super) struct ClaimedMessage {
    pub(super) leased: LeasedMessage,
    /// Lateness of its attempt in microseconds.
    pub(super) late_us: u64,
    /// Tells a handler that the lease is lost.
    pub(super) lease_lost: Option<Arc<LeaseLostSignal>>,
}

/// A running call of a sink or handler.
pub(super) struct RunningCall {
    pub(super) call: AbortHandle,
    pub(super) began: Monotonic,
    pub(super) lease_lost: Option<Arc<LeaseLostSignal>>,
}

/// A lane that this driver serves.
pub(super) struct ServedLane {
    pub(super) lane: Lane,
    pub(super) worker: Worker,
    pub(super) counters: Arc<LaneCounters>,
    pub(super) stopped_tx: Vec<oneshot::Sender<()>>,
}

pub(crate) struct Driver {
    pub(super) parts: EngineHandles,
    scheduler: Scheduler,
    inputs: UnboundedReceiver<Input>,
    actions: Vec<Action>,
    pub(super) lanes: HashMap<LaneKey, ServedLane>,
    keys: HashMap<Lane, LaneKey>,
    pub(super) in_flight: HashMap<Job, ClaimedMessage>,
    pub(super) running: HashMap<DeliveryKey, RunningCall>,
    serial: u64,
    lane_serial: u32,
    closing: Option<oneshot::Sender<()>>,
    sleep: Option<(Monotonic, Sleep)>,
}

impl Driver {
    pub(crate) fn new(parts: EngineHandles, inputs: UnboundedReceiver<Input>, settings: Settings) -> Self {
        Self {
            parts,
            scheduler: Scheduler::new(settings),
            inputs,
            actions: Vec::new(),
            lanes: HashMap::new(),
            keys: HashMap::new(),
            in_flight: HashMap::new(),
            running: HashMap::new(),
            serial: 0,
            lane_serial: 0,
            closing: None,
            sleep: None,
        }
    }

    /// Runs until the shutdown. Any other end marks delivery as stopped.
    pub(crate) async fn run(self) {
        let liveness = self.parts.liveness.clone();
        match catch_panic(self.drive()).await {
            Ok(Some(stopped_tx)) => _ = stopped_tx.send(()),
            Ok(None) => liveness.stop("the driver returned".into()),
            Err(panic) => liveness.stop(format!("the driver {panic}")),
        }
    }

    /// Returns the sender that waits for the end.
    async fn drive(mut self) -> Option<oneshot::Sender<()>> {
        loop {
            let now = self.parts.clock.now();
            for (lane, due) in self.parts.hints.take() {
                if let Some(&lane) = self.keys.get(&lane) {
                    self.decide(|scheduler, actions| {
                        scheduler.apply(now, Event::Hint { lane, due }, actions)
                    });
                }
            }
            for _ in 0..INPUTS_AT_ONCE {
                let Ok(input) = self.inputs.try_recv() else { break };
                self.handle_input(input);
            }
            let now = self.parts.clock.now();
            self.decide(|scheduler, actions| scheduler.step(now, Event::Tick, actions));
            if self.closing.is_some() && self.lanes.is_empty() {
                break;
            }
            let hints = self.parts.hints.clone();
            let input = tokio::select! {
                biased;
                input = self.inputs.recv() => input,
                () = hints.changed.notified() => None,
                () = sleep(&mut self.sleep, self.scheduler.next_wake(), &*self.parts.clock) => {
                    self.sleep = None;
                    None
                }
            };
            if let Some(input) = input {
                self.handle_input(input);
            }
        }
        self.closing.take()
    }

    fn handle_input(&mut self, input: Input) {
        let now = self.parts.clock.now();
        let event = match input {
            Input::Command(command) => self.event_of_command(command),
            Input::Completion(completion) => self.event_of_completion(completion, now),
        };
        if let Some(event) = event {
            self.decide(|scheduler, actions| scheduler.apply(now, event, actions));
        }
    }

    /// Lets the scheduler decide, and performs the actions.
    fn decide(&mut self, decide: impl FnOnce(&mut Scheduler, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.actions);
        decide(&mut self.scheduler, &mut actions);
        for action in actions.drain(..) {
            self.perform(action);
        }
        self.actions = actions;
    }

    /// The event of a command.
    fn event_of_command(&mut self, command: Command) -> Option<Event> {
        Some(match command {
            // Claims of a new lane would be dropped with the driver, and wait for their leases to end.
            Command::AddLane { .. } if self.closing.is_some() => return None,
            Command::AddLane { lane, settings, worker, paused } => {
                self.lane_serial += 1;
                let key = LaneKey(self.lane_serial);
                self.keys.insert(lane.clone(), key);
                let counters = self.parts.events.counters.lane(&lane);
                self.lanes.insert(key, ServedLane { lane, worker, counters, stopped_tx: Vec::new() });
                Event::LaneAdded { lane: key, settings, paused }
            }
            Command::StopLane { lane, grace_end, stopped_tx } => {
                // Dropping `stopped_tx` wakes the caller as well.
                let key = self.keys.remove(&lane)?;
                self.lanes.get_mut(&key)?.stopped_tx.push(stopped_tx);
                Event::LaneStopped { lane: key, grace_end }
            }
            Command::Pause { lane, paused } => {
                let lane = *self.keys.get(&lane)?;
                if paused { Event::Paused { lane } } else { Event::Resumed { lane } }
            }
            Command::Probe { lane } => Event::ProbeNow { lane: *self.keys.get(&lane)? },
            Command::Snapshot { answer } => {
                let snapshot = |served: &LaneKey| {
                    Some((self.lanes.get(served)?.lane.clone(), self.scheduler.snapshot(*served)?))
                };
                let _ = answer.send(self.keys.values().filter_map(snapshot).collect());
                return None;
            }
            Command::Shutdown { grace_end, stopped_tx } => {
                self.closing = Some(stopped_tx);
                self.keys.clear();
                Event::Shutdown { grace_end }
            }
        })
    }

    /// The event of a completion.
    fn event_of_completion(&mut self, completion: Completion, now: Now) -> Option<Event> {
        Some(match completion {
            Completion::Claimed { lane, requested_at, delivered_in_store, result } => {
                match self.observe_claim(lane, now, delivered_in_store, result) {
                    Ok(claimed) => self.claimed(lane, requested_at, delivered_in_store, claimed),
                    Err(error) => {
                        tracing::warn!(%error, "claim failed");
                        Event::ClaimFailed { lane }
                    }
                }
            }
            Completion::CallResults { results } => {
                let delivery = results.delivery;
                self.running.get(&delivery)?;
                Event::CallResults { delivery, results: results.take(), is_over: false }
            }
            Completion::CallEnded { delivery, results } => {
                self.running.remove(&delivery)?;
                Event::CallResults { delivery, results: results.take(), is_over: true }
            }
            Completion::Settled { settle, batch, result } => {
                match self.parts.events.observe(StoreCall::Settle, now, result) {
                    Ok(results) => {
                        let lost = self.settled(&batch, &results, now);
                        Event::Settled { settle, lost }
                    }
                    Err(error) => {
                        // The store may refuse a batch for one message: the scheduler repeats it in parts.
                        let first = batch.first().and_then(|(job, _)| self.in_flight.get(job));
                        let only = first.filter(|_| batch.len() == 1);
                        let id = only.map(|claimed| claimed.leased.message.id.as_str());
                        tracing::warn!(%error, count = batch.len(), id, "settle failed");
                        Event::SettleFailed { settle }
                    }
                }
            }
            Completion::Extended { jobs, requested_at, result } => {
                let result = self.parts.events.observe(StoreCall::Extend, now, result);
                let results =
                    result.inspect_err(|error| tracing::warn!(%error, "lease renewal failed")).ok()?;
                // Unknown results are neither renewed nor lost: those leases last as they were.
                let known = jobs.into_iter().zip(results).filter(|(_, settled)| *settled != Settled::Unknown);
                let known: Vec<_> = known.collect();
                let lost = known.iter().filter(|(_, settled)| *settled == Settled::Lost).map(|(job, _)| *job);
                let lost = lost.collect();
                Event::Extended { lost, jobs: known.into_iter().map(|(job, _)| job).collect(), requested_at }
            }
            Completion::Swept { result } => match self.parts.events.observe(StoreCall::Sweep, now, result) {
                Ok(sweep) => self.swept(sweep),
                Err(error) => {
                    tracing::warn!(%error, "sweep failed");
                    Event::SweepFailed
                }
            },
            Completion::Probed { lane, result } => Event::Probed { lane, result },
        })
    }

    fn observe_claim(
        &self,
        lane: LaneKey,
        now: Now,
        delivered_in_store: usize,
        result: Result<Claimed, StoreError>,
    ) -> Result<Claimed, StoreError> {
        let Some(served) = self.lanes.get(&lane) else { return result };
        let call = if delivered_in_store > 0 {
            StoreCall::Claim(&served.lane)
        } else {
            StoreCall::claim(&served.lane, &result)
        };
        self.parts.events.observe(call, now, result)
    }

    fn claimed(
        &mut self,
        lane: LaneKey,
        requested_at: Monotonic,
        delivered_in_store: usize,
        claimed: Claimed,
    ) -> Event {
        let mut taken = Vec::with_capacity(claimed.messages.len());
        let worker = self.lanes.get(&lane).map(|served| served.worker.clone());
        for leased in claimed.messages {
            self.serial += 1;
            let job = Job { lane, serial: self.serial };
            let mut terms = DeliveryTerms::of(&leased);
            if let Some(Worker::Sink(sink, _)) = &worker {
                terms = terms.to(&destination_of(&**sink, &leased.message));
            }
            taken.push(ClaimedJob { job, terms });
            self.in_flight.insert(job, ClaimedMessage { leased, late_us: 0, lease_lost: None });
        }
        Event::Claimed { lane, taken, delivered_in_store, next: claimed.next, requested_at }
    }

    fn swept(&self, sweep: Sweep) -> Event {
        if sweep.leases_ended > 0 {
            add(&self.parts.events.counters.engine.leases_ended, sweep.leases_ended);
            self.parts.hints.wake_receivers();
        }
        let next = sweep.next.into_iter();
        let keys = |lanes: Vec<Lane>| lanes.iter().filter_map(|lane| self.keys.get(lane).copied()).collect();
        Event::Swept {
            next: next.filter_map(|(lane, due)| Some((*self.keys.get(&lane)?, due))).collect(),
            leases_ended: sweep.leases_ended,
            next_lease_end: sweep.next_lease_end,
            again_within: sweep.again_within,
            paused: sweep.paused.map(keys),
        }
    }
}

/// Sleeps until `wake`. A running sleep is kept unless it would end too late.
async fn sleep(kept: &mut Option<(Monotonic, Sleep)>, wake: Option<Monotonic>, clock: &dyn Clock) {
    let Some(wake) = wake else { return std::future::pending().await };
    match kept {
        Some((until, sleep)) if *until <= wake => sleep.await,
        _ => {
            let (_, sleep) = kept.insert((wake, clock.sleep_until(wake)));
            sleep.await;
        }
    }
}
