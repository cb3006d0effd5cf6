//! One life of the engine: from its start to a crash, or to the end of the run.

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly, Error, HandlerOptions, ManualClock, Message, SinkOptions};
use duly_core::{
    Backoff, Body, MessageId, Monotonic, RetryOverride, RetryPolicy, Store, Timestamp,
    store::{Insert, Inserted},
};
use duly_stores::MemoryStore;
use tokio::task::JoinHandle;

use super::{
    client::{Client, HANDS},
    ledger::Broken,
    rest::Rest,
    script::{Road, SINKS, Step, script},
    slow_store::SlowStore,
    target::{Handler, Target},
    world::World,
};
use crate::planted::{Bug, Planted};

/// Claimed and not yet settled, per lane.
const IN_FLIGHT: usize = 8;
/// What one loss of everything in hand can leave twice: the stated bound.
pub(super) const IN_FLIGHT_MAX: u32 = (3 * IN_FLIGHT + HANDS) as u32;
/// Once faults have stopped and the last message is due, nothing may stay overdue for longer.
const HEALED_WITHIN: Duration = Duration::from_secs(90);
/// More moments than any run needs: an engine that is always busy never lets time pass.
const MOMENTS_MAX: u32 = 200_000;

/// Why a life ended.
pub(super) enum Exit {
    Crashed,
    /// It was asked to.
    Stopped,
    Over,
}

/// What outlives the engine.
pub(super) struct Run {
    pub(super) world: Arc<World>,
    pub(super) memory: MemoryStore,
    bug: Option<Bug>,
    script: Vec<(Duration, Step)>,
    began: Monotonic,
    began_wall: Timestamp,
    targets: [Target; 2],
    handler: Handler,
    client: Client,
    pub(super) lives: u64,
    moments: u32,
    healed: Option<Monotonic>,
    /// How long after the last due time the last message ended.
    pub(super) healed_in: Duration,
}

impl Run {
    pub(super) fn new(world: &Arc<World>, bug: Option<Bug>) -> Self {
        let now = world.clock.now();
        Self {
            world: world.clone(),
            memory: MemoryStore::new(),
            bug,
            script: script(world),
            began: now.mono(),
            began_wall: now.wall(),
            targets: [Target::new(world, 0), Target::new(world, 1)],
            handler: Handler::new(world),
            client: Client::new(world),
            lives: 0,
            moments: 0,
            healed: None,
            healed_in: Duration::ZERO,
        }
    }

    /// Runs one life.
    pub(super) async fn live(&mut self, rest: &Rest) -> Exit {
        self.lives += 1;
        let planted: Arc<dyn Store> = Arc::new(Planted::new(Arc::new(self.memory.clone()), self.bug));
        let duly = self.start(planted.clone()).await;
        tokio::spawn(self.client.clone().run(duly.clone(), Road::Client.target().1));
        if self.healed.is_some() {
            tokio::spawn(pause(self.world.clone(), duly.clone(), false));
        }
        let mut stopping = None;
        loop {
            rest.reached().await;
            self.moments += 1;
            self.world.next_moment();
            if self.is_over().await {
                return Exit::Over;
            }
            if stopping.as_ref().is_some_and(JoinHandle::is_finished) {
                return Exit::Stopped;
            }
            let elapsed = self.clock().now().mono().since(self.began);
            let step = self.script.pop_if(|(at, _)| *at <= elapsed).map(|(_, step)| step);
            match step {
                Some(Step::Crash) => {
                    self.world.ledger().losses += 1;
                    return Exit::Crashed;
                }
                Some(Step::Stop) => {
                    self.world.trace(|| "asked to stop".into());
                    let duly = duly.clone();
                    stopping = Some(tokio::spawn(async move { duly.shutdown().await }));
                }
                Some(step) => {
                    self.world.trace(|| format!("{step:?}"));
                    self.perform(step, &duly, &planted).await;
                }
                None => self.let_time_pass(),
            }
        }
    }

    fn clock(&self) -> &ManualClock {
        &self.world.clock
    }

    async fn start(&self, store: Arc<dyn Store>) -> Duly {
        let store = Arc::new(SlowStore::new(store, self.world.clone(), self.lives));
        let retry = RetryPolicy {
            attempts: 16,
            backoff: Backoff::Exponential,
            min: Duration::from_millis(200),
            max: Duration::from_secs(5),
        };
        let handlers = HandlerOptions {
            concurrency: 4,
            batch: IN_FLIGHT,
            timeout: Duration::from_secs(20),
            failed: Duration::from_secs(2),
            max: Duration::from_secs(5),
            ..HandlerOptions::default()
        };
        let mut builder = Duly::builder()
            .store(store)
            .clock(Arc::new(self.clock().clone()))
            .seed(self.world.dice(0x0400 + self.lives).below(u64::MAX))
            .lease(Duration::from_secs(10))
            .retry(retry)
            .handlers(handlers);
        for (name, target) in SINKS.into_iter().zip(&self.targets) {
            let timeout = Duration::from_secs(4);
            let options = SinkOptions {
                in_flight: IN_FLIGHT,
                concurrency: 2,
                batch: 4,
                timeout,
                ..SinkOptions::default()
            };
            builder = builder.sink(name, Arc::new(target.clone()), options);
        }
        let duly = builder.start().await.unwrap();
        let handler = self.handler.clone();
        let handle = move |task| handler.clone().handle(task);
        duly.handle(Road::Handler.target().1, handle).start().await.unwrap();
        duly
    }

    /// Everybody waits: on to the next moment at which anybody wants something.
    fn let_time_pass(&mut self) {
        let next_step = self.script.last().map(|(at, _)| self.began.saturating_add(*at));
        let next = [next_step, self.clock().next_deadline()].into_iter().flatten().min();
        // Without a deadline an engine would sleep for ever; the look at the end says so.
        self.clock().advance_to(next.unwrap_or(Monotonic::from_micros(u64::MAX / 2)));
    }

    async fn is_over(&mut self) -> bool {
        if self.world.ledger().broken.is_some() {
            return true;
        }
        if self.moments > MOMENTS_MAX {
            let what = format!("still busy after {MOMENTS_MAX} moments");
            self.world.ledger().break_promise(Broken::Stuck(what));
            return true;
        }
        let Some(healed) = self.healed else { return false };
        let now = self.clock().now();
        let totals = self.memory.totals().await.unwrap();
        let latest = self.world.ledger().latest;
        let waiting_for = latest.as_millis().saturating_mul(1000).saturating_sub(now.wall_micros());
        let passed = now.wall().since(latest).min(now.mono().since(healed));
        self.healed_in = if waiting_for > 0 { Duration::ZERO } else { passed };
        totals.pending + totals.in_flight == 0 || self.healed_in > HEALED_WITHIN
    }

    async fn perform(&mut self, step: Step, duly: &Duly, store: &Arc<dyn Store>) {
        let (clock, wall) = (self.world.clock.clone(), self.clock().now().wall());
        match step {
            Step::Send { id, road, delay, attempts, max_lateness, quietly } => {
                let due = wall.saturating_add(delay);
                self.world.ledger().asked_to_send(&id, due, attempts, max_lateness);
                let (sink, topic) = road.target();
                self.world.ledger().entry(&id).target = format!("{sink}/{topic}");
                let message = message(&id, road, due, attempts, max_lateness);
                if quietly {
                    self.send_quietly(store, message).await;
                } else {
                    tokio::spawn(send(self.world.clone(), duly.clone(), message));
                }
            }
            Step::SendAgain { which } => self.send_again(which, duly, store).await,
            Step::Cancel { which } => {
                let Some(id) = self.world.ledger().idle(which) else { return };
                self.world.ledger().asked_to_cancel(&id);
                let (world, duly) = (self.world.clone(), duly.clone());
                tokio::spawn(async move {
                    if let Ok(answer) = duly.cancel(&id).await {
                        world.ledger().answered_cancel(&id, answer);
                    }
                });
            }
            Step::Move { which, delay } => {
                let Some(id) = self.world.ledger().idle(which) else { return };
                let due = wall.saturating_add(delay);
                self.world.ledger().asked_to_move(&id, due);
                let (world, duly) = (self.world.clone(), duly.clone());
                tokio::spawn(async move {
                    if let Ok(answer) = duly.reschedule(&id, due).await {
                        world.ledger().answered_move(&id, answer);
                    }
                });
            }
            Step::Jump { by_ms } => {
                let to = wall.as_millis().saturating_add_signed(by_ms);
                clock.set_wall(Timestamp::from_millis(to));
            }
            Step::Freeze { span } => {
                self.world.ledger().losses += 1;
                clock.advance(span);
            }
            Step::Heal => {
                self.world.heal();
                let now = clock.now().mono();
                clock.set_wall(self.began_wall.saturating_add(now.since(self.began)));
                self.healed = Some(now);
                // The resume may have met a crash; if the process stops just now, the next life does it.
                tokio::spawn(pause(self.world.clone(), duly.clone(), false));
            }
            Step::Pause { paused } => {
                let (world, duly) = (self.world.clone(), duly.clone());
                tokio::spawn(pause(world, duly, paused));
            }
            Step::Crash | Step::Stop => {}
        }
    }

    /// Through another node: this one hears nothing of it.
    async fn send_quietly(&self, store: &Arc<dyn Store>, message: duly_core::StoredMessage) {
        let id = message.id.clone();
        let answers = store.insert(self.clock().now(), vec![Insert::new(message)]).await;
        let mut ledger = self.world.ledger();
        let entry = ledger.entry(&id);
        entry.busy = false;
        entry.accepted = answers.is_ok_and(|answers| answers == [Inserted::Accepted]);
    }

    async fn send_again(&self, which: u64, duly: &Duly, store: &Arc<dyn Store>) {
        let Some(id) = self.world.ledger().idle(which) else { return };
        let Some(record) = store.get(std::slice::from_ref(&id)).await.unwrap().remove(0) else { return };
        self.world.ledger().entry(&id).busy = true;
        let (world, duly) = (self.world.clone(), duly.clone());
        let m = record.message;
        // The body may be gone by now; it is always the id.
        let again = Message::to_sink(m.sink.as_str(), m.topic.as_str()).id(m.id.as_str()).text(m.id.as_str());
        tokio::spawn(async move {
            let answer = duly.send(again).await;
            let mut ledger = world.ledger();
            ledger.entry(&id).busy = false;
            match answer {
                Ok(accepted) if accepted.duplicate => {}
                Err(Error::Store(_) | Error::Unanswered { .. } | Error::Closed) => {}
                other => {
                    let what = format!("{id} was sent again, and the answer is {other:?}");
                    ledger.break_promise(Broken::Answer(what));
                }
            }
        });
    }
}

async fn send(world: Arc<World>, duly: Duly, message: duly_core::StoredMessage) {
    let mut draft = Message::to_sink(message.sink.as_str(), message.topic.as_str())
        .id(message.id.as_str())
        .body(message.body.clone())
        .at(message.due);
    if let Some(retry) = message.retry.as_deref() {
        draft = draft.retry(retry.clone());
    }
    if let Some(span) = message.max_lateness {
        draft = draft.max_lateness(span);
    }
    let answer = duly.send(draft).await;
    let mut ledger = world.ledger();
    let entry = ledger.entry(&message.id);
    entry.busy = false;
    entry.accepted = answer.is_ok();
}

/// A pause counts from its answer, a resume from its asking.
async fn pause(world: Arc<World>, duly: Duly, paused: bool) {
    let _turn = world.operator.lock().await;
    if !paused {
        world.ledger().paused = false;
        // Nobody answers for a pause that an earlier life did not finish.
        let _ = duly.resume_sink(SINKS[0]).await;
    } else if duly.pause_sink(SINKS[0]).await.is_ok() {
        world.ledger().paused = true;
    }
}

fn message(
    id: &MessageId,
    road: Road,
    due: Timestamp,
    attempts: u32,
    max_lateness: Option<Duration>,
) -> duly_core::StoredMessage {
    let (sink, topic) = road.target();
    let mut message =
        duly_core::StoredMessage::new(id.clone(), sink.parse().unwrap(), topic.parse().unwrap(), due);
    message.body = Body::text(id.as_str());
    message.retry = Some(Box::new(RetryOverride { attempts: Some(attempts), ..RetryOverride::default() }));
    message.max_lateness = max_lateness;
    message
}
