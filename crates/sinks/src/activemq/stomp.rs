//! STOMP 1.2, as ActiveMQ and ActiveMQ Artemis speak it.

use std::{io, time::Duration};

use bytes::BytesMut;
use duly_core::{Delivery, SinkError};

use super::{
    config::ActivemqDestination,
    failure::{self, not_taken, words},
    frame::{self, Writer},
    message,
};
use crate::connection::{self, Address, InFlight, Link, Protocol, connect_failed};

/// Messages that wait for their receipts at the same time.
const WINDOW: usize = 1024;

/// The client side of the protocol: frames to the broker, and receipts matched to messages.
pub(super) struct Stomp {
    pub(super) to: ActivemqDestination,
    pub(super) timeout: Duration,
}

/// The session id, the kind of broker, and the number of the next receipt.
pub(super) struct Session {
    name: String,
    pub(super) make: Make,
    next: u64,
}

/// Who made the broker. Each has its own way to say whether a name is that of a queue or of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    /// ActiveMQ (Classic), and whoever understands `/queue/` and `/topic/`.
    Classic,
    /// ActiveMQ Artemis. To it `/queue/orders` is an address of that whole name, unless its acceptor is configured with prefixes, and
    /// what is sent there is acknowledged and thrown away. It wants the bare name and the routing type in a header.
    Artemis,
}

impl Make {
    fn of(server: Option<&str>) -> Self {
        match server {
            Some(server) if server.starts_with("ActiveMQ-Artemis") => Self::Artemis,
            _ => Self::Classic,
        }
    }
}

impl Protocol for Stomp {
    type Session = Session;
    const FAREWELL: &'static [u8] = frame::FAREWELL;
    const KEEP_ALIVE: &'static [u8] = b"\n";

    async fn log_in(&self, link: &mut Link, address: &Address, host: &str) -> Result<Session, SinkError> {
        let silence = connection::silence_max(self.timeout).as_millis();
        let mut greeting = BytesMut::new();
        let mut frame = Writer::new(&mut greeting, "CONNECT")
            .plain("accept-version", "1.2")
            .plain("host", host)
            .plain("heart-beat", &format!("{silence},0"));
        if let Some(user) = &address.user {
            frame = frame.plain("login", user);
        }
        if let Some(password) = &address.password {
            frame = frame.plain("passcode", password);
        }
        frame.end(&[]);
        let answer = link.ask(greeting, frame::next).await.map_err(|why| connect_failed(&why))?;
        if answer.command != "CONNECTED" {
            return Err(failure::not_let_in(words(&answer)));
        }
        let name = answer.header("session").unwrap_or("a session without a name").to_owned();
        Ok(Session { name, make: Make::of(answer.header("server")), next: 1 })
    }

    /// The heartbeat that we offer is always kept, and a broker cannot ask for more.
    fn silence_max(&self, _: &Session) -> Option<Duration> {
        None
    }

    fn window(&self, _: &Session) -> usize {
        WINDOW
    }

    fn number(&self, session: &mut Session, count: usize) -> u64 {
        session.next += count as u64;
        session.next - count as u64
    }

    fn send(
        &self,
        session: &Session,
        delivery: &Delivery,
        number: u64,
        out: &mut BytesMut,
    ) -> Result<(), SinkError> {
        message::send(out, delivery, (self.to, session.make), number);
        Ok(())
    }

    fn on_read(
        &self,
        session: &Session,
        in_flight: &mut InFlight<'_>,
        read: &mut BytesMut,
        _: &mut BytesMut,
    ) -> io::Result<()> {
        while let Some(frame) = frame::next(read)? {
            let number = frame.header("receipt-id").and_then(|id| id.parse().ok());
            match (frame.command.as_str(), number.filter(|number| in_flight.is_sent(*number))) {
                ("RECEIPT", Some(number)) => {
                    in_flight.end(number, Ok(format!("{} receipt {number}", session.name)));
                }
                ("ERROR", Some(number)) => in_flight.end(number, Err(not_taken(words(&frame)))),
                ("ERROR", None) => {
                    // It no longer knows where it is in what we send, and would take bodies for commands: away from here.
                    let words = words(&frame);
                    in_flight.complain(not_taken(words.clone()));
                    return Err(io::Error::other(words));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A transaction with nothing in it, given up.
    async fn ask(&self, link: &mut Link) -> Result<(), SinkError> {
        let mut question = BytesMut::new();
        Writer::new(&mut question, "BEGIN").header("transaction", "probe").end(&[]);
        Writer::new(&mut question, "ABORT")
            .header("transaction", "probe")
            .header("receipt", "probe")
            .end(&[]);
        let answer = link.ask(question, frame::next).await.map_err(|why| connect_failed(&why))?;
        match answer.command.as_str() {
            "RECEIPT" => Ok(()),
            "ERROR" => Err(failure::not_let_in(words(&answer))),
            _ => Err(SinkError::unreachable("no answer that makes sense")),
        }
    }
}
