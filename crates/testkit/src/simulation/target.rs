//! The far ends: a push target and a handler, good or bad as the world allows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use duly::{Clock, Task, Verdict};
use duly_core::{
    Delivery, DeliveryResult, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind, StoredMessage, Topic,
};

use super::{Fault, dice::Dice, world::World};

/// How one try will go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Taken,
    /// No answer; `true`: it arrived all the same.
    Unknown(bool),
    Refused,
    Throttled,
    Misconfigured,
    /// No answer for longer than anybody waits; `true`: it arrived all the same.
    Hangs(bool),
    /// The target goes away with this one.
    Away,
    /// Something is wrong with the topic for a while.
    Topic(Trouble),
}

/// What is wrong with one topic of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Silent,
    Denied,
    Full,
}

/// A push target. Shared by all lives of the engine, as a broker would be.
#[derive(Clone)]
pub(super) struct Target {
    world: Arc<World>,
    dice: Arc<Mutex<Dice>>,
    away_until: Arc<Mutex<Monotonic>>,
    /// By topic, and until when.
    troubles: Arc<Mutex<BTreeMap<Topic, (Trouble, Monotonic)>>>,
}

impl Target {
    pub(super) fn new(world: &Arc<World>, number: u64) -> Self {
        let dice = Arc::new(Mutex::new(world.dice(0x0100 + number)));
        Self { world: world.clone(), dice, away_until: Arc::default(), troubles: Arc::default() }
    }

    fn trouble(&self, topic: &Topic) -> Option<Trouble> {
        let (trouble, until) = self.troubles.lock().unwrap().get(topic).copied()?;
        (self.world.may(Fault::FailedDelivery) && self.world.clock.now().mono() < until).then_some(trouble)
    }

    fn is_away(&self) -> bool {
        self.world.may(Fault::FailedDelivery)
            && self.world.clock.now().mono() < *self.away_until.lock().unwrap()
    }

    fn fate(&self, topic: &Topic) -> Fate {
        if !self.world.may(Fault::FailedDelivery) {
            return Fate::Taken;
        }
        if let Some(trouble) = self.trouble(topic) {
            return Fate::Topic(trouble);
        }
        let mut dice = self.dice.lock().unwrap();
        match dice.below(100) {
            0..60 => Fate::Taken,
            60..72 => Fate::Unknown(dice.chance(50)),
            72..75 => Fate::Refused,
            75..82 => Fate::Throttled,
            82..84 => Fate::Misconfigured,
            84..90 => Fate::Hangs(dice.chance(50)),
            90..95 => {
                let trouble = [Trouble::Silent, Trouble::Denied, Trouble::Full][dice.below(3) as usize];
                let until = self.world.clock.now().mono().saturating_add(dice.millis(500, 15_000));
                self.troubles.lock().unwrap().insert(topic.clone(), (trouble, until));
                Fate::Topic(trouble)
            }
            _ => Fate::Away,
        }
    }

    fn latency(&self) -> Duration {
        self.dice.lock().unwrap().millis(0, 40)
    }

    /// One message at the target; `None`: it never answers.
    fn meet(&self, message: &StoredMessage) -> Option<DeliveryResult> {
        let id = &message.id;
        let fail = |kind| Some(Err(SinkError::new(kind, "as the dice fell")));
        let (world, fate) = (&self.world, self.fate(&message.topic));
        world.tell(|| format!("{id} at the target: {fate:?}"));
        match fate {
            Fate::Taken | Fate::Unknown(true) | Fate::Hangs(true) => {
                let now = world.clock.now();
                let mut ledger = world.ledger();
                ledger.arrived(id, now);
                ledger.unacknowledged += u32::from(fate != Fate::Taken);
            }
            Fate::Refused => world.ledger().was_refused(id),
            Fate::Throttled | Fate::Misconfigured | Fate::Topic(Trouble::Full) => {
                world.ledger().was_outage(id)
            }
            Fate::Away => {
                world.ledger().was_outage(id);
                let until =
                    world.clock.now().mono().saturating_add(self.dice.lock().unwrap().millis(500, 15_000));
                *self.away_until.lock().unwrap() = until;
            }
            Fate::Topic(Trouble::Denied) => {
                world.ledger().deny(&message.lane().to_string(), message.topic.as_str())
            }
            Fate::Unknown(false) | Fate::Hangs(false) | Fate::Topic(Trouble::Silent) => {}
        }
        match fate {
            Fate::Taken => Some(Ok("taken".into())),
            Fate::Unknown(_) => fail(SinkErrorKind::Unknown),
            Fate::Refused => fail(SinkErrorKind::Refused),
            Fate::Throttled => {
                let wait = Some(Duration::from_millis(700));
                Some(Err(SinkError::new(SinkErrorKind::Throttled, "slower").after(wait)))
            }
            Fate::Misconfigured => fail(SinkErrorKind::Misconfigured),
            Fate::Away => fail(SinkErrorKind::Unreachable),
            Fate::Topic(Trouble::Denied) => fail(SinkErrorKind::Denied),
            Fate::Topic(Trouble::Full) => {
                Some(Err(SinkError::new(SinkErrorKind::Throttled, "full").at_destination()))
            }
            Fate::Hangs(_) | Fate::Topic(Trouble::Silent) => None,
        }
    }
}

#[async_trait]
impl Sink for Target {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let steady = !self.world.mix.has(Fault::ClockJump);
        for delivery in batch {
            let now = self.world.clock.now();
            let mut ledger = self.world.ledger();
            ledger.begins(&delivery.message.id, now, steady);
            if steady {
                ledger.begins_in_time(&delivery.message.id, now);
            }
        }
        self.world.sleep(self.latency()).await;
        let mut is_answered = true;
        for (index, Delivery { message, .. }) in batch.iter().enumerate() {
            let result = if self.is_away() {
                self.world.ledger().was_outage(&message.id);
                Some(Err(SinkError::new(SinkErrorKind::Unreachable, "away")))
            } else {
                self.meet(message)
            };
            match result {
                Some(result) => outcomes.report(index, result),
                None => is_answered = false,
            }
            // Some outcomes are known later than others.
            if self.dice.lock().unwrap().chance(20) {
                self.world.sleep(self.latency()).await;
            }
        }
        if !is_answered {
            self.world.sleep(Duration::from_secs(3600)).await;
        }
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.world.sleep(self.latency()).await;
        if self.is_away() { Err(SinkError::new(SinkErrorKind::Unreachable, "away")) } else { Ok(()) }
    }
}

/// A handler in the engine's own process.
#[derive(Clone)]
pub(super) struct Handler {
    world: Arc<World>,
    dice: Arc<Mutex<Dice>>,
}

impl Handler {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: world.clone(), dice: Arc::new(Mutex::new(world.dice(0x0200))) }
    }

    pub(super) async fn handle(self, task: Task) -> Result<Verdict, String> {
        let (world, id) = (&self.world, task.message_id());
        let now = world.clock.now();
        world.ledger().begins(id, now, !world.mix.has(Fault::ClockJump));
        let (fate, latency) = {
            let mut dice = self.dice.lock().unwrap();
            (dice.below(100), dice.millis(0, 60))
        };
        world.tell(|| format!("{id} at the handler: {fate}"));
        world.sleep(latency).await;
        if world.may(Fault::FailedDelivery) {
            match fate {
                0..8 => return Ok(Verdict::retry()),
                8..16 => return Err("it failed".into()),
                // Past the panic hook: it is planned, and need not be printed a thousand times.
                16..20 => std::panic::resume_unwind(Box::new("the handler panics, as planned")),
                20..26 => world.sleep(Duration::from_secs(12)).await,
                26..29 => world.sleep(Duration::from_secs(3600)).await,
                _ => {}
            }
        }
        if !task.is_lease_lost() {
            let now = world.clock.now();
            world.ledger().arrived(id, now);
        }
        Ok(Verdict::Done)
    }
}
