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

use super::{Hints, Note, Worker, caught, work::destination_of};
use crate::{
    events::Bell,
    health::{Checks, Liveness},
    observed::Call,
    tally::{LaneTally, add},
    task::Hold,
};

/// So many notes are taken before hints are looked at again.
const NOTES_AT_ONCE: usize = 256;

/// What the driver shares with the library's front.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) checks: Arc<Checks>,
    pub(crate) notes: UnboundedSender<Note>,
}

impl Parts {
    /// Different for every Duly of the process.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.bell) as usize
    }
}

/// A claimed message in the driver's hands.
pub(super) struct Held {
    pub(super) leased: LeasedMessage,
    /// How late its try began, in microseconds.
    pub(super) late_us: u64,
    /// Tells a handler that the lease is lost.
    pub(super) hold: Option<Arc<Hold>>,
}

/// A call of a sink or handler under way.
pub(super) struct Running {
    pub(super) call: AbortHandle,
    pub(super) began: Monotonic,
    pub(super) hold: Option<Arc<Hold>>,
}

pub(super) struct Served {
    pub(super) lane: Lane,
    pub(super) worker: Worker,
    pub(super) tally: Arc<LaneTally>,
    pub(super) gone: Vec<oneshot::Sender<()>>,
}

pub(crate) struct Driver {
    pub(super) parts: Parts,
    scheduler: Scheduler,
    notes: UnboundedReceiver<Note>,
    actions: Vec<Action>,
    pub(super) lanes: HashMap<LaneKey, Served>,
    keys: HashMap<Lane, LaneKey>,
    pub(super) held: HashMap<Job, Held>,
    pub(super) running: HashMap<DeliveryKey, Running>,
    serial: u64,
    lane_serial: u32,
    closing: Option<oneshot::Sender<()>>,
    sleep: Option<(Monotonic, Sleep)>,
}

impl Driver {
    pub(crate) fn new(parts: Parts, notes: UnboundedReceiver<Note>, settings: Settings) -> Self {
        Self {
            parts,
            scheduler: Scheduler::new(settings),
            notes,
            actions: Vec::new(),
            lanes: HashMap::new(),
            keys: HashMap::new(),
            held: HashMap::new(),
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
            Ok(Some(gone)) => _ = gone.send(()),
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
            for _ in 0..NOTES_AT_ONCE {
                let Ok(note) = self.notes.try_recv() else { break };
                self.take_note(note);
            }
            let now = self.parts.clock.now();
            self.decide(|scheduler, actions| scheduler.step(now, Event::Tick, actions));
            if self.closing.is_some() && self.lanes.is_empty() {
                break;
            }
            let hints = self.parts.hints.clone();
            let note = tokio::select! {
                biased;
                note = self.notes.recv() => note,
                () = hints.news.notified() => None,
                () = sleep(&mut self.sleep, self.scheduler.next_wake(), &*self.parts.clock) => {
                    self.sleep = None;
                    None
                }
            };
            if let Some(note) = note {
                self.take_note(note);
            }
        }
        self.closing.take()
    }

    fn take_note(&mut self, note: Note) {
        let now = self.parts.clock.now();
        if let Some(event) = self.event_of(note, now) {
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

    /// What a note means to the scheduler.
    fn event_of(&mut self, note: Note, now: Now) -> Option<Event> {
        Some(match note {
            // What a lane claimed now would be given up with the driver, and wait for its lease to end.
            Note::AddLane { .. } if self.closing.is_some() => return None,
            Note::AddLane { lane, settings, worker, paused } => {
                self.lane_serial += 1;
                let key = LaneKey(self.lane_serial);
                self.keys.insert(lane.clone(), key);
                let tally = self.parts.bell.tally.lane(&lane);
                self.lanes.insert(key, Served { lane, worker, tally, gone: Vec::new() });
                Event::LaneAdded { lane: key, settings, paused }
            }
            Note::StopLane { lane, grace_end, gone } => {
                // Dropping `gone` tells the caller too: there is nothing to wait for.
                let key = self.keys.remove(&lane)?;
                self.lanes.get_mut(&key)?.gone.push(gone);
                Event::LaneStopped { lane: key, grace_end }
            }
            Note::Pause { lane, paused } => {
                let lane = *self.keys.get(&lane)?;
                if paused { Event::Paused { lane } } else { Event::Resumed { lane } }
            }
            Note::Probe { lane } => Event::ProbeNow { lane: *self.keys.get(&lane)? },
            Note::Look { answer } => {
                let look = |served: &LaneKey| {
                    Some((self.lanes.get(served)?.lane.clone(), self.scheduler.snapshot(*served)?))
                };
                let _ = answer.send(self.keys.values().filter_map(look).collect());
                return None;
            }
            Note::Shutdown { grace_end, gone } => {
                self.closing = Some(gone);
                self.keys.clear();
                Event::Shutdown { grace_end }
            }
            Note::Claimed { lane, asked, moved, result } => match self.observe_claim(lane, now, result) {
                Ok(claimed) => self.claimed(lane, asked, moved, claimed),
                Err(error) => {
                    tracing::warn!(%error, "claim failed");
                    Event::ClaimFailed { lane }
                }
            },
            Note::Ends { ends } => {
                let delivery = ends.delivery;
                self.running.get(&delivery)?;
                Event::Delivered { delivery, ends: ends.take(), is_over: false }
            }
            Note::Delivered { delivery, ends } => {
                self.running.remove(&delivery)?;
                Event::Delivered { delivery, ends: ends.take(), is_over: true }
            }
            Note::Settled { settle, batch, result } => {
                match self.parts.bell.observe(Call::Settle, now, result) {
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
            Note::Extended { jobs, asked, result } => {
                let result = self.parts.bell.observe(Call::Extend, now, result);
                let results =
                    result.inspect_err(|error| tracing::warn!(%error, "lease renewal failed")).ok()?;
                // What nothing is known of is neither: it is held for as long as its lease was last said to last.
                let known = jobs.into_iter().zip(results).filter(|(_, settled)| *settled != Settled::Unknown);
                let known: Vec<_> = known.collect();
                let lost = known.iter().filter(|(_, settled)| *settled == Settled::Lost).map(|(job, _)| *job);
                let lost = lost.collect();
                Event::Extended { lost, jobs: known.into_iter().map(|(job, _)| job).collect(), asked }
            }
            Note::Swept { result } => {
                self.parts.bell.observed.sweep_ended();
                match self.parts.bell.observe(Call::Sweep, now, result) {
                    Ok(sweep) => self.swept(sweep),
                    Err(error) => {
                        tracing::warn!(%error, "sweep failed");
                        Event::SweepFailed
                    }
                }
            }
            Note::Probed { lane, result } => Event::Probed { lane, result },
        })
    }

    fn observe_claim(
        &self,
        lane: LaneKey,
        now: Now,
        result: Result<Claimed, StoreError>,
    ) -> Result<Claimed, StoreError> {
        match self.lanes.get(&lane) {
            Some(served) => self.parts.bell.observe(Call::Claim(&served.lane), now, result),
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
            self.held.insert(job, Held { leased, late_us: 0, hold: None });
        }
        Event::Claimed { lane, taken, moved, next: claimed.next, asked }
    }

    fn swept(&self, sweep: Sweep) -> Event {
        if sweep.leases_ended > 0 {
            add(&self.parts.bell.tally.leases_ended, sweep.leases_ended);
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
