//! A client that receives from the built-in queue: a process of its own, which outlives the engine's.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use duly::{Clock, Duly, Receive};
use duly_core::MessageId;

use super::{Fault, dice::Dice, world::World};

/// At most so many in the client's hands.
pub(super) const HANDS: usize = 4;

/// The client. What it holds stays in its hands when the engine dies.
#[derive(Clone)]
pub(super) struct Client {
    world: Arc<World>,
    dice: Arc<Mutex<Dice>>,
    hands: Arc<Mutex<Vec<(MessageId, String)>>>,
}

impl Client {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let dice = Arc::new(Mutex::new(world.dice(0x0300)));
        Self { world: world.clone(), dice, hands: Arc::default() }
    }

    /// Receives and works for as long as the engine lives.
    pub(super) async fn run(self, duly: Duly, queue: &'static str) {
        loop {
            self.put_down(&duly).await;
            let want = Receive { max: HANDS, wait: Duration::from_secs(20), lease: Duration::from_secs(10) };
            let Ok(received) = duly.receive(queue, want).await else {
                self.world.sleep(Duration::from_millis(300)).await;
                continue;
            };
            for received in received {
                let now = self.world.clock.now();
                let id = received.message.id;
                self.world.ledger().begins(&id, now, !self.world.mix.has(Fault::ClockJump));
                self.work(&duly, id, received.receipt).await;
            }
        }
    }

    async fn work(&self, duly: &Duly, id: MessageId, receipt: String) {
        let (roll, latency) = {
            let mut dice = self.dice.lock().unwrap();
            (dice.below(100), dice.millis(0, 80))
        };
        self.world.trace(|| format!("{id} at the client: {roll}"));
        self.world.sleep(latency).await;
        if self.world.may(Fault::FailedDelivery) {
            match roll {
                0..12 => {
                    // An answer that never comes is as good as none: the lease ends by itself.
                    let _ = duly.nack(&[receipt], Some(Duration::from_millis(900))).await;
                    return;
                }
                12..20 => return,
                _ => {}
            }
        }
        let now = self.world.clock.now();
        self.world.ledger().arrived(&id, now);
        self.hands.lock().unwrap().push((id, receipt));
    }

    /// Acknowledges what is done, until the engine says that it heard.
    async fn put_down(&self, duly: &Duly) {
        loop {
            let Some((id, receipt)) = self.hands.lock().unwrap().last().cloned() else { return };
            match duly.ack(&[receipt.as_str()]).await {
                Ok(_) => self.hands.lock().unwrap().retain(|(held, _)| *held != id),
                Err(_) => self.world.sleep(Duration::from_millis(100)).await,
            }
        }
    }
}
