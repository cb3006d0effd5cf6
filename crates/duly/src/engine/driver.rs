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

use super::{Command, Completion, Hints, Input, Worker, caught, work::destination_of};
use crate::{
    events::EventBus,
    health::{Checks, Liveness},
    observed::Call,
    tally::{LaneTally, add},
    task::LeaseLostSignal,
};

/// Inputs handled before hints are looked at again.
const INPUTS_AT_ONCE: usize = 256;

/// What the driver shares with the library's front.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) events: Arc<EventBus>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) checks: Arc<Checks>,
    pub(crate) inputs: UnboundedSender<Input>,
}

impl Parts {
    /// Different for every Duly of the process.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.events) as usize
    }
}

/// A claimed message in the driver's hands.
pub(super) struct ClaimedMessage {
    pub(super) leased: LeasedMessage,
    /// How late its try began, in microseconds.
    pub(super) late_us: u64,
    /// Tells a handler that the lease is lost.
    pub(super) lease_lost: Option<Arc<LeaseLostSignal>>,
}

/// A call of a sink or handler under way.
pub(super) struct Running {
    pub(super) call: AbortHandle,
    pub(super) began: Monotonic,
    pub(super) lease_lost: Option<Arc<LeaseLostSignal>>,
}

pub(super) struct Served {
    pub(super) lane: Lane,
    pub(super) worker: Worker,
    pub(super) tally: Arc<LaneTally>,
    pub(super) stopped_tx: Vec<oneshot::Sender<()>>,
}

pub(crate) struct Driver {
    pub(super) parts: Parts,
    scheduler: Scheduler,
    inputs: UnboundedReceiver<Input>,
    actions: Vec<Action>,
    pub(super) lanes: HashMap<LaneKey, Served>,
    keys: HashMap<Lane, LaneKey>,
    pub(super) in_flight: HashMap<Job, ClaimedMessage>,
    pub(super) running: HashMap<DeliveryKey, Running>,
    serial: u64,
    lane_serial: u32,
    closing: Option<oneshot::Sender<()>>,
    sleep: Option<(Monotonic, Sleep)>,
}

impl Driver {
    pub(crate) fn new(parts: Parts, inputs: UnboundedReceiver<Input>, settings: Settings) -> Self {
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

    /// Runs until shut down. Any other end is told: without this task nothing is delivered any more.
    pub(crate) async fn run(self) {
        let liveness = self.parts.liveness.clone();
        match caught(self.drive()).await {
            Ok(Some(stopped_tx)) => _ = stopped_tx.send(()),
            Ok(None) => liveness.stop("the driver returned".into()),
            Err(panic) => liveness.stop(format!("the driver {panic}")),
        }
    }

    /// Gives whoever asked it to end.
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
                () = hints.news.notified() => None,
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

    /// Lets the scheduler decide, and performs what it decided.
    fn decide(&mut self, decide: impl FnOnce(&mut Scheduler, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.actions);
        decide(&mut self.scheduler, &mut actions);
        for action in actions.drain(..) {
            self.perform(action);
        }
        self.actions = actions;
    }

    /// What a command means to the scheduler.
    fn event_of_command(&mut self, command: Command) -> Option<Event> {
        Some(match command {
            // What a lane claimed now would be given up with the driver, and wait for its lease to end.
            Command::AddLane { .. } if self.closing.is_some() => return None,
            Command::AddLane { lane, settings, worker, paused } => {
                self.lane_serial += 1;
                let key = LaneKey(self.lane_serial);
                self.keys.insert(lane.clone(), key);
                let tally = self.parts.events.tally.lane(&lane);
                self.lanes.insert(key, Served { lane, worker, tally, stopped_tx: Vec::new() });
                Event::LaneAdded { lane: key, settings, paused }
            }
            Command::StopLane { lane, grace_end, stopped_tx } => {
                // Dropping `stopped_tx` tells the caller too: there is nothing to wait for.
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
                let look = |served: &LaneKey| {
                    Some((self.lanes.get(served)?.lane.clone(), self.scheduler.snapshot(*served)?))
                };
                let _ = answer.send(self.keys.values().filter_map(look).collect());
                return None;
            }
            Command::Shutdown { grace_end, stopped_tx } => {
                self.closing = Some(stopped_tx);
                self.keys.clear();
                Event::Shutdown { grace_end }
            }
        })
    }

    /// What the result of started work means to the scheduler.
    fn event_of_completion(&mut self, completion: Completion, now: Now) -> Option<Event> {
        Some(match completion {
            Completion::Claimed { lane, asked, moved, result } => match self.observe_claim(lane, now, result)
            {
                Ok(claimed) => self.claimed(lane, asked, moved, claimed),
                Err(error) => {
                    tracing::warn!(%error, "claim failed");
                    Event::ClaimFailed { lane }
                }
            },
            Completion::Results { results } => {
                let delivery = results.delivery;
                self.running.get(&delivery)?;
                Event::Delivered { delivery, ends: results.take(), is_over: false }
            }
            Completion::Delivered { delivery, results } => {
                self.running.remove(&delivery)?;
                Event::Delivered { delivery, ends: results.take(), is_over: true }
            }
            Completion::Settled { settle, batch, result } => {
                match self.parts.events.observe(Call::Settle, now, result) {
                    Ok(results) => {
                        let lost = self.settled(&batch, &results, now);
                        Event::Settled { settle, lost }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "settle failed");
                        Event::SettleFailed { settle }
                    }
                }
            }
            Completion::Extended { jobs, asked, result } => {
                let result = self.parts.events.observe(Call::Extend, now, result);
                let results =
                    result.inspect_err(|error| tracing::warn!(%error, "lease renewal failed")).ok()?;
                // What nothing is known of is neither: it is held for as long as its lease was last said to last.
                let known = jobs.into_iter().zip(results).filter(|(_, settled)| *settled != Settled::Unknown);
                let known: Vec<_> = known.collect();
                let lost = known.iter().filter(|(_, settled)| *settled == Settled::Lost).map(|(job, _)| *job);
                let lost = lost.collect();
                Event::Extended { lost, jobs: known.into_iter().map(|(job, _)| job).collect(), asked }
            }
            Completion::Swept { result } => {
                self.parts.events.observed.sweep_ended();
                match self.parts.events.observe(Call::Sweep, now, result) {
                    Ok(sweep) => self.swept(sweep),
                    Err(error) => {
                        tracing::warn!(%error, "sweep failed");
                        Event::SweepFailed
                    }
                }
            }
            Completion::Probed { lane, result } => Event::Probed { lane, result },
        })
    }

    fn observe_claim(
        &self,
        lane: LaneKey,
        now: Now,
        result: Result<Claimed, StoreError>,
    ) -> Result<Claimed, StoreError> {
        match self.lanes.get(&lane) {
            Some(served) => self.parts.events.observe(Call::Claim(&served.lane), now, result),
            None => result,
        }
    }

    fn claimed(&mut self, lane: LaneKey, asked: Monotonic, moved: usize, claimed: Claimed) -> Event {
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
        Event::Claimed { lane, taken, moved, next: claimed.next, asked }
    }

    fn swept(&self, sweep: Sweep) -> Event {
        if sweep.leases_ended > 0 {
            add(&self.parts.events.tally.leases_ended, sweep.leases_ended);
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

/// Sleeps until `wake`. A sleep already begun is kept unless it would end too late.
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
