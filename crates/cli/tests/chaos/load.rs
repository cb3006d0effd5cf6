//! Senders and cancellers: they ask any node, and another one if it does not answer.

use std::{sync::Arc, time::Duration};

use duly::{Clock, SystemClock};
use duly_core::schedule::Random;
use http::Method;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    ledger::{Accepted, Cancel, Ledger, SINKS},
    node::Node,
    targets::STREAMS,
};

const SENDERS: u64 = 6;
/// A sender waits up to so long between two messages.
const BETWEEN_MS: u64 = 60;
/// Due between these.
const DELAYS_MS: std::ops::Range<u64> = 50..3000;
/// What is due sooner than this is not worth a cancel.
const CANCEL_FROM_MS: u64 = 400;

/// Real time: what is under test are processes of the system.
#[derive(Debug, Clone)]
pub(crate) struct Time(SystemClock);

impl Time {
    pub(crate) fn new() -> Self {
        Self(SystemClock::new().unwrap())
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        self.0.now().wall().as_millis()
    }

    /// How long a fault lasts, or how long a client waits.
    pub(crate) async fn pass(&self, span: Duration) {
        self.0.sleep_until(self.0.now().mono().saturating_add(span)).await;
    }

    pub(crate) async fn pass_ms(&self, ms: u64) {
        self.pass(Duration::from_millis(ms)).await;
    }
}

/// Everything a sender needs.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) nodes: Arc<Vec<Node>>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) time: Time,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Load {
    pub(crate) fn start(&self, seed: u64) -> JoinSet<()> {
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(self.clone().send_all(sender, Random::new(seed << 8 | sender)));
        }
        senders
    }

    /// Ends when it is told to and all that it asked for was answered.
    async fn send_all(self, sender: u64, mut random: Random) {
        let mut cancels = JoinSet::new();
        for number in 0.. {
            if *self.stop.borrow() {
                break;
            }
            let id = format!("{sender}-{number}");
            let delay_ms = DELAYS_MS.start + random.draw() % (DELAYS_MS.end - DELAYS_MS.start);
            let is_unwanted = delay_ms >= CANCEL_FROM_MS && random.draw().is_multiple_of(6);
            let tries = self.send(&id, delay_ms, is_unwanted, &mut random).await;
            // A try that got no answer may still be taken later, after a cancel: then that is a message of its own.
            if tries == 1 && is_unwanted {
                let after_ms = random.draw() % (delay_ms + 100);
                cancels.spawn(self.clone().cancel(id, after_ms, Random::new(random.draw())));
            }
            self.time.pass_ms(random.draw() % BETWEEN_MS).await;
        }
        while let Some(done) = cancels.join_next().await {
            done.unwrap();
        }
    }

    /// Sends until some node says that it has it. Gives how often it was tried.
    async fn send(&self, id: &str, delay_ms: u64, is_unwanted: bool, random: &mut Random) -> u32 {
        let sink = SINKS[(random.draw() % 3) as usize];
        let topic = STREAMS[(random.draw() % STREAMS.len() as u64) as usize];
        let body = json!({"id": id, "sink": sink, "topic": topic, "body": format!("body of {id}"), "delay": delay_ms});
        self.ledger.ask(id, sink, self.time.wall_ms(), delay_ms);
        self.ledger.change(id, |entry| entry.again = (!is_unwanted).then(|| body.to_string()));
        for tries in 1.. {
            match self.any(random).call(Method::POST, "/v1/messages", body.to_string()).await {
                Ok((200 | 201, answer)) => {
                    let due_ms = answer["deliver_at_ms"].as_u64().unwrap();
                    let accepted = Some(Accepted { at_ms: self.time.wall_ms(), due_ms });
                    self.ledger.change(id, |entry| entry.accepted = accepted);
                    return tries;
                }
                Ok((status @ 400..500, answer)) => panic!("{id} is refused: {status} {answer}"),
                Ok(_) | Err(_) => self.ledger.change(id, |entry| entry.unknown += 1),
            }
            self.time.pass_ms(20 + random.draw() % 80).await;
        }
        unreachable!("it is tried until it is accepted")
    }

    async fn cancel(self, id: String, after_ms: u64, mut random: Random) {
        self.time.pass_ms(after_ms).await;
        let mut asked_before = false;
        let cancel = loop {
            match self
                .any(&mut random)
                .call(Method::DELETE, &format!("/v1/messages/{id}"), String::new())
                .await
            {
                Ok((200, answer)) if answer["maybe_delivered"] == true => break Cancel::Maybe,
                Ok((200, _)) => break Cancel::Done,
                Ok((409, answer)) if answer["state"] == "cancelled" => {
                    assert!(asked_before, "nobody else cancels {id}");
                    break Cancel::Maybe;
                }
                Ok((409, _)) => break Cancel::None,
                Ok((404, _)) => break Cancel::Missing,
                Ok((status @ 400..500, answer)) => panic!("cancel of {id}: {status} {answer}"),
                Ok(_) | Err(_) => asked_before = true,
            }
            self.time.pass_ms(20 + random.draw() % 80).await;
        };
        let cancelled_ms = self.time.wall_ms();
        self.ledger.change(&id, |entry| (entry.cancel, entry.cancelled_ms) = (cancel, cancelled_ms));
    }

    fn any(&self, random: &mut Random) -> &Node {
        &self.nodes[(random.draw() % self.nodes.len() as u64) as usize]
    }
}
