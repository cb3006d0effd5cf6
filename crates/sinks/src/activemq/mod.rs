#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod frame;
mod message;
mod settings;
mod talk;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::BytesMut;
use duly_core::{Clock, Delivery, Outcomes, Sink, SinkError, SinkErrorKind};

pub use config::{ActivemqConfig, ActivemqDestination};
use failure::no_connection;
use frame::Writer;
use settings::Settings;
use talk::{Ask, Batch, Outcome};

use crate::wires::{self, Wire, Wires};

/// Messages of one call that wait for their receipts at the same time.
const WINDOW: usize = 1024;

/// Sends to ActiveMQ.
pub struct ActivemqSink {
    settings: Settings,
    wires: Arc<Wires<Session>>,
    /// The broker complained and did not say of which message: until a call goes well, one after the other, so that it shows.
    is_careful: AtomicBool,
}

/// What a connection is called by the broker, and the number of its next receipt.
struct Session {
    name: String,
    next: u64,
}

impl ActivemqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { settings, wires: Wires::new(clock, frame::FAREWELL), is_careful: AtomicBool::new(false) }
    }

    /// A connection that waits, or a new one.
    async fn wire(&self) -> Result<Wire<Session>, SinkError> {
        if let Some(wire) = self.wires.waiting() {
            return Ok(wire);
        }
        let address = &self.settings.address;
        let mut wire = Wire::to(address).await.map_err(|why| wires::unconnected(&why))?;
        let silence = wires::silence_max(self.settings.timeout).as_millis();
        let mut greeting = BytesMut::new();
        let mut frame = Writer::new(&mut greeting, "CONNECT")
            .plain("accept-version", "1.2")
            .plain("host", &address.host)
            .plain("heart-beat", &format!("{silence},0"));
        if let Some(user) = &address.user {
            frame = frame.plain("login", user);
        }
        if let Some(password) = &address.password {
            frame = frame.plain("passcode", password);
        }
        frame.end(&[]);
        let mut ask = Ask::new(greeting);
        wire.talk(&mut ask).await.map_err(|why| wires::unconnected(&why))?;
        match ask.answer {
            Some(answer) if answer.command == "CONNECTED" => {
                let name = answer.header("session").unwrap_or("a session without a name").to_owned();
                Ok(wire.greeted(Session { name, next: 1 }))
            }
            Some(answer) => Err(failure::not_let_in(failure::words(&answer))),
            None => Err(no_connection("no answer to CONNECT")),
        }
    }

    async fn send(&self, batch: &[&Delivery]) -> Vec<Outcome> {
        let (begin_until, end) = self.wires.ends(self.settings.timeout);
        let begin = async { (self.wires.turn().await, self.wire().await) };
        let begun = self.wires.within(begin_until, begin).await;
        let (_turn, mut wire) = match begun {
            Some((turn, Ok(wire))) => (turn, wire),
            Some((_, Err(failure))) => return vec![Err(failure); batch.len()],
            None => return vec![Err(no_connection("no connection in time")); batch.len()],
        };
        let first = wire.greeting.next;
        wire.greeting.next += batch.len() as u64;
        let window = if self.is_careful.load(Ordering::Relaxed) { 1 } else { WINDOW };
        let session = wire.greeting.name.clone();
        let mut talk = Batch::new(batch, self.settings.destination, (&session, first), window);
        let done = self.wires.within(end, wire.talk(&mut talk)).await;
        let why = match done {
            Some(Ok(())) => {
                self.is_careful.store(false, Ordering::Relaxed);
                self.wires.give_back(wire);
                "it was left unanswered".to_owned()
            }
            Some(Err(why)) => why.to_string(),
            None => "no receipt in time".to_owned(),
        };
        if talk.has_a_culprit() {
            self.is_careful.store(true, Ordering::Relaxed);
        }
        talk.outcomes(&why)
    }

    /// A transaction with nothing in it, given up.
    async fn ask(&self) -> Result<(), SinkError> {
        let _turn = self.wires.turn().await;
        let mut wire = self.wire().await?;
        let mut say = BytesMut::new();
        Writer::new(&mut say, "BEGIN").header("transaction", "probe").end(&[]);
        Writer::new(&mut say, "ABORT").header("transaction", "probe").header("receipt", "probe").end(&[]);
        let mut ask = Ask::new(say);
        wire.talk(&mut ask).await.map_err(|why| wires::unconnected(&why))?;
        match ask.answer {
            Some(answer) if answer.command == "RECEIPT" => {
                self.wires.give_back(wire);
                Ok(())
            }
            Some(answer) => Err(failure::not_let_in(failure::words(&answer))),
            None => Err(no_connection("no answer")),
        }
    }
}

impl ActivemqSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let checked: Vec<_> = batch.iter().map(message::check).collect();
        let fit: Vec<_> =
            batch.iter().zip(&checked).filter(|(_, fault)| fault.is_none()).map(|(each, _)| each).collect();
        if fit.is_empty() {
            return checked.into_iter().flatten().map(Err).collect();
        }
        let mut sent = self.send(&fit).await.into_iter();
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "it was left unanswered"));
        checked
            .into_iter()
            .map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err))
            .collect()
    }
}

#[async_trait]
impl Sink for ActivemqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, if need be, and begins a transaction that is given up. Nothing is sent.
    async fn probe(&self) -> Result<(), SinkError> {
        let (_, end) = self.wires.ends(self.settings.timeout);
        let asked = self.wires.within(end, self.ask()).await;
        asked.unwrap_or_else(|| Err(no_connection("no answer in time")))
    }
}
