//! MQTT, as a client that only publishes.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use duly_core::{Delivery, SinkError};

use super::{
    failure::{self, NOBODY, describe, is_failure, not_taken},
    message,
    packet::{self, Login, Packet, Reason, Step, Welcome},
    settings::{Qos, Settings},
};
use crate::connection::{self, Address, InFlight, Link, Protocol, connect_failed};

/// Messages that wait for their acknowledgements at the same time, if the broker allows as many.
const WINDOW: usize = 1024;

/// The client side of the protocol: packets to the broker, and answers matched to messages.
pub(super) struct Client {
    settings: Arc<Settings>,
    names: ClientIds,
}

/// A connection: what the broker said in welcome, and the name that it has as long as it lasts.
pub(super) struct Session {
    welcome: Welcome,
    _name: Option<ClientId>,
}

impl Client {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, names: ClientIds::default() }
    }

    fn answered(
        &self,
        in_flight: &mut InFlight<'_>,
        step: Step,
        id: u16,
        reason: &Reason,
        out: &mut BytesMut,
    ) {
        let number = u64::from(id);
        let expected = match step {
            Step::Acknowledged => self.settings.qos == Qos::AtLeastOnce && in_flight.is_sent(number),
            Step::Received => self.settings.qos == Qos::ExactlyOnce && in_flight.is_sent(number),
            Step::Complete => in_flight.is_received(number),
        };
        if !expected {
            return;
        }
        if is_failure(reason) {
            in_flight.end(number, Err(not_taken(reason)));
        } else if step == Step::Received {
            in_flight.received(number);
            packet::release(out, id);
        } else {
            let name = if step == Step::Acknowledged { "PUBACK" } else { "PUBCOMP" };
            let nobody = if reason.code == NOBODY { ", no matching subscribers" } else { "" };
            in_flight.end(number, Ok(format!("{name} {id}{nobody}")));
        }
    }
}

impl Protocol for Client {
    type Session = Session;
    const FAREWELL: &'static [u8] = packet::FAREWELL;
    const KEEP_ALIVE: &'static [u8] = packet::PING;

    async fn log_in(&self, link: &mut Link, address: &Address, _: &str) -> Result<Session, SinkError> {
        let Settings { version, qos, timeout, client_id, clean_start, .. } = &*self.settings;
        let name = client_id.as_ref().map(|id| self.names.take(id));
        let hello = packet::connect(&Login {
            version: *version,
            keep_alive: u16::try_from(connection::silence_max(*timeout).as_secs()).unwrap_or(u16::MAX),
            client_id: name.as_ref().map_or("", |name| &name.text),
            clean_start: *clean_start,
            user: address.user.as_deref(),
            password: address.password.as_deref(),
        });
        let parse = |read: &mut BytesMut| packet::next(read, *version);
        let welcome = match link.ask(hello, parse).await.map_err(|why| connect_failed(&why))? {
            Packet::Welcome(welcome) if welcome.reason.code == 0 => welcome,
            Packet::Welcome(Welcome { reason, .. }) | Packet::Goodbye(reason) => {
                return Err(failure::not_let_in(&reason, *version));
            }
            _ => return Err(SinkError::unreachable("no answer to CONNECT that makes sense")),
        };
        if welcome.qos_max < *qos as u8 {
            let detail = format!("this broker has no QoS {}, only up to {}", *qos as u8, welcome.qos_max);
            return Err(SinkError::misconfigured(detail));
        }
        Ok(Session { welcome, _name: name })
    }

    fn silence_max(&self, session: &Session) -> Option<Duration> {
        // 0 switches it off.
        session
            .welcome
            .keep_alive
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into()))
    }

    fn window(&self, session: &Session) -> usize {
        WINDOW.min(session.welcome.receive_max.into())
    }

    /// The number of a packet is the place of its message, from 1: whatever had that number before is over.
    fn number(&self, _: &mut Session, _: usize) -> u64 {
        1
    }

    fn send(
        &self,
        session: &Session,
        delivery: &Delivery,
        number: u64,
        out: &mut BytesMut,
    ) -> Result<(), SinkError> {
        let (how, max) = ((self.settings.version, self.settings.qos), session.welcome.packet_max);
        message::publish(out, delivery, how, number as u16, max).map_err(|length| {
            SinkError::refused(format!("a packet of {length} bytes, and this broker takes {max}"))
        })
    }

    fn on_read(
        &self,
        _: &Session,
        in_flight: &mut InFlight<'_>,
        read: &mut BytesMut,
        out: &mut BytesMut,
    ) -> io::Result<()> {
        while let Some(packet) = packet::next(read, self.settings.version)? {
            match packet {
                Packet::Answer(step, id, reason) => self.answered(in_flight, step, id, &reason, out),
                Packet::Goodbye(reason) => {
                    in_flight.complain(not_taken(&reason));
                    return Err(io::Error::other(describe(&reason)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// PINGREQ and its answer.
    async fn ask(&self, link: &mut Link) -> Result<(), SinkError> {
        let parse = |read: &mut BytesMut| packet::next(read, self.settings.version);
        match link.ask(Bytes::from_static(packet::PING), parse).await.map_err(|why| connect_failed(&why))? {
            Packet::Pong => Ok(()),
            Packet::Goodbye(reason) => Err(SinkError::unreachable(describe(&reason))),
            _ => Err(SinkError::unreachable("no answer to a ping that makes sense")),
        }
    }
}

/// Numbers of connections. Two with the same client id would throw each other out.
#[derive(Debug, Clone, Default)]
struct ClientIds(Arc<Mutex<BTreeSet<usize>>>);

/// The client id of a connection, free again when it is dropped.
#[derive(Debug)]
struct ClientId {
    text: String,
    number: usize,
    all: ClientIds,
}

impl ClientIds {
    /// `id` for the first, `id-1`, `id-2` and so on for those beside it.
    fn take(&self, id: &str) -> ClientId {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..).find(|number| !used.contains(number)).unwrap_or_default();
        used.insert(number);
        let text = if number == 0 { id.to_owned() } else { format!("{id}-{number}") };
        ClientId { text, number, all: self.clone() }
    }
}

impl Drop for ClientId {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_have_names_of_their_own() {
        let names = ClientIds::default();
        let (first, second) = (names.take("duly"), names.take("duly"));
        assert_eq!((&*first.text, &*second.text), ("duly", "duly-1"));
        drop(first);
        assert_eq!(names.take("duly").text, "duly");
    }
}
