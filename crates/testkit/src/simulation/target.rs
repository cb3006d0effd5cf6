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
enum Reaction {
    Accepted,
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

    fn reaction(&self, topic: &Topic) -> Reaction {
        if !self.world.may(Fault::FailedDelivery) {
            return Reaction::Accepted;
        }
        if let Some(trouble) = self.trouble(topic) {
            return Reaction::Topic(trouble);
        }
        let mut dice = self.dice.lock().unwrap();
        match dice.below(100) {
            0..60 => Reaction::Accepted,
            60..72 => Reaction::Unknown(dice.chance(50)),
            72..75 => Reaction::Refused,
            75..82 => Reaction::Throttled,
            82..84 => Reaction::Misconfigured,
            84..90 => Reaction::Hangs(dice.chance(50)),
            90..95 => {
                let trouble = [Trouble::Silent, Trouble::Denied, Trouble::Full][dice.below(3) as usize];
                let until = self.world.clock.now().mono().saturating_add(dice.millis(500, 15_000));
                self.troubles.lock().unwrap().insert(topic.clone(), (trouble, until));
                Reaction::Topic(trouble)
            }
            _ => Reaction::Away,
        }
    }

    fn latency(&self) -> Duration {
        self.dice.lock().unwrap().millis(0, 40)
    }

    /// One message at the target; `None`: it never answers.
    fn receive(&self, message: &StoredMessage) -> Option<DeliveryResult> {
        let id = &message.id;
        let fail = |kind| Some(Err(SinkError::new(kind, "as the dice fell")));
        let (world, reaction) = (&self.world, self.reaction(&message.topic));
        world.trace(|| format!("{id} at the target: {reaction:?}"));
        match reaction {
            Reaction::Accepted | Reaction::Unknown(true) | Reaction::Hangs(true) => {
                let now = world.clock.now();
                let mut ledger = world.ledger();
                ledger.arrived(id, now);
                ledger.unacknowledged += u32::from(reaction != Reaction::Accepted);
            }
            Reaction::Refused => world.ledger().was_refused(id),
            Reaction::Throttled | Reaction::Misconfigured | Reaction::Topic(Trouble::Full) => {
                world.ledger().was_outage(id)
            }
            Reaction::Away => {
                world.ledger().was_outage(id);
                let until =
                    world.clock.now().mono().saturating_add(self.dice.lock().unwrap().millis(500, 15_000));
                *self.away_until.lock().unwrap() = until;
            }
            Reaction::Topic(Trouble::Denied) => {
                world.ledger().deny(&message.lane().to_string(), message.topic.as_str(), id)
            }
            Reaction::Unknown(false) | Reaction::Hangs(false) | Reaction::Topic(Trouble::Silent) => {}
        }
        match reaction {
            Reaction::Accepted => Some(Ok("taken".into())),
            Reaction::Unknown(_) => fail(SinkErrorKind::Unknown),
            Reaction::Refused => fail(SinkErrorKind::Refused),
            Reaction::Throttled => {
                let wait = Some(Duration::from_millis(700));
                Some(Err(SinkError::new(SinkErrorKind::Throttled, "slower").after(wait)))
            }
            Reaction::Misconfigured => fail(SinkErrorKind::Misconfigured),
            Reaction::Away => fail(SinkErrorKind::Unreachable),
            Reaction::Topic(Trouble::Denied) => fail(SinkErrorKind::Denied),
            Reaction::Topic(Trouble::Full) => {
                Some(Err(SinkError::new(SinkErrorKind::Throttled, "full").at_destination()))
            }
            Reaction::Hangs(_) | Reaction::Topic(Trouble::Silent) => None,
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
                self.receive(message)
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
        let (reaction, latency) = {
            let mut dice = self.dice.lock().unwrap();
            (dice.below(100), dice.millis(0, 60))
        };
        world.trace(|| format!("{id} at the handler: {reaction}"));
        world.sleep(latency).await;
        if world.may(Fault::FailedDelivery) {
            match reaction {
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
