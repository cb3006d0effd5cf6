//! One delivery call over as many connections as it needs.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, atomic::Ordering},
};

use bytes::BytesMut;
use duly_core::{Delivery, Monotonic, Outcomes, SinkError};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::{SemaphorePermit, oneshot};

use super::{
    Connection, Pool, Protocol,
    in_flight::{Cut, InFlight},
};
use crate::{exchange::Exchange, within::within};

/// Maximum of messages on one connection in one call: MQTT has no more packet ids.
const IN_FLIGHT_MAX: usize = u16::MAX as usize;
/// A connection without an answer for this part of the call's time, with messages in flight, is stalled.
const STALL_PART: u32 = 4;

/// A call and its deadlines.
#[derive(Clone, Copy)]
struct DeliverCall<'a> {
    batch: &'a [Delivery],
    outcomes: &'a Outcomes<'a>,
    begin_until: Monotonic,
    end: Monotonic,
}

/// Why some messages share a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Messages to destinations that are not suspects.
    Trusted,
    /// Messages to one suspect.
    OwnConnection,
}

/// The result of one connection.
struct ConnectionOutcome {
    /// Not sent.
    left: Vec<usize>,
    /// Why.
    error: SinkError,
    /// Whether another connection may do better.
    can_retry: bool,
}

impl<P: Protocol> Pool<P> {
    /// Delivers the messages with these indices.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        batch: &[Delivery],
        indices: Vec<usize>,
        outcomes: &Outcomes<'_>,
    ) {
        let (begin_until, end) = self.ends();
        self.send_all(DeliverCall { batch, outcomes, begin_until, end }, indices).await;
    }

    /// Sends messages to each suspected destination on a connection of its own, and all others on shared ones.
    fn send_all<'a>(self: &'a Arc<Self>, call: DeliverCall<'a>, indices: Vec<usize>) -> BoxFuture<'a, ()> {
        let now = self.now();
        let mut trusted = Vec::new();
        let mut aside = BTreeMap::<&str, Vec<usize>>::new();
        for index in indices {
            let topic = call.batch[index].message.topic.as_str();
            if self.suspects.contains(topic, now) {
                aside.entry(topic).or_default().push(index);
            } else {
                trusted.push(index);
            }
        }
        let trusted = trusted.chunks(IN_FLIGHT_MAX).map(|part| (part.to_vec(), Group::Trusted));
        let groups: Vec<_> =
            trusted.chain(aside.into_values().map(|all| (all, Group::OwnConnection))).collect();
        async move {
            join_all(groups.into_iter().map(|(indices, group)| self.send(call, indices, group))).await;
        }
        .boxed()
    }

    /// Sends a group. A broker may close the connection over a message that it refuses: what was not sent by then goes on another.
    async fn send(self: &Arc<Self>, mut call: DeliverCall<'_>, mut left: Vec<usize>, group: Group) {
        while !left.is_empty() {
            let round = self.round(call, left, group).await;
            left = round.left;
            if !round.can_retry {
                left.iter().for_each(|index| call.outcomes.report(*index, Err(round.error.clone())));
                return;
            }
            call = self.once_more(call);
        }
    }

    /// The call, with half of its remaining time to get another connection.
    fn once_more<'a>(&self, call: DeliverCall<'a>) -> DeliverCall<'a> {
        let now = self.now();
        let begin_until = call.begin_until.max(now.saturating_add(call.end.since(now) / 2));
        DeliverCall { begin_until, ..call }
    }

    async fn round(
        self: &Arc<Self>,
        call: DeliverCall<'_>,
        indices: Vec<usize>,
        group: Group,
    ) -> ConnectionOutcome {
        let turns = match group {
            Group::Trusted => &self.in_use,
            Group::OwnConnection => &self.aside,
        };
        let begin = async {
            let turn = turns.acquire().await;
            (turn, self.connection(call.begin_until).await)
        };
        let (permit, mut connection) = match within(&*self.clock, call.begin_until, begin).await {
            Some((permit, Ok(connection))) => (permit.ok(), connection),
            Some((_, Err(error))) => return ConnectionOutcome { left: indices, error, can_retry: false },
            None => {
                let error = SinkError::unreachable("no connection in time");
                // Other destinations hold all connections: the broker itself may be healthy.
                let is_full = turns.available_permits() == 0;
                let error = if is_full { error.at_destination() } else { error };
                return ConnectionOutcome { left: indices, error, can_retry: false };
            }
        };
        let is_careful = match group {
            Group::Trusted => self.is_careful.load(Ordering::Relaxed),
            // All of them go to one destination.
            Group::OwnConnection => indices.first().is_some_and(|first| {
                self.careful.contains(call.batch[*first].message.topic.as_str(), self.now())
            }),
        };
        let window = if is_careful { 1 } else { self.protocol.window(&connection.session) };
        let first = self.protocol.number(&mut connection.session, indices.len());
        let mut in_flight = InFlight::new(call.batch, &indices, call.outcomes, (first, window));
        let (moved, is_moved) = oneshot::channel();
        // Unsent messages of a stalled connection do not wait for its end.
        let elsewhere = async {
            if let Ok(moved) = is_moved.await {
                self.send_all(self.once_more(call), moved).await;
            }
        };
        let stalled = Stalled { moved: Some(moved), permit, group };
        let (done, ()) =
            tokio::join!(self.run_exchange(call, &mut connection, &mut in_flight, stalled), elsewhere);
        self.ended(done, connection, in_flight, (group, is_careful))
    }

    /// Sends and reads until all answers are there or the time is over.
    async fn run_exchange(
        &self,
        call: DeliverCall<'_>,
        connection: &mut Connection<P>,
        in_flight: &mut InFlight<'_>,
        mut stalled: Stalled<'_>,
    ) -> Option<io::Result<()>> {
        let stall = self.timeout / STALL_PART;
        let silence = self.protocol.silence_max(&connection.session);
        let tick = silence.map_or(stall, |max| stall.min(max / 2));
        let (mut answers, mut since) = (0, self.now());
        loop {
            let until = self.now().saturating_add(tick).min(call.end);
            let Connection { link, session, .. } = connection;
            let mut exchange = InFlightExchange { protocol: &self.protocol, session, in_flight };
            if let Some(done) = within(&*self.clock, until, link.exchange(&mut exchange)).await {
                return Some(done);
            }
            let now = self.now();
            if now >= call.end {
                return None;
            }
            link.keep_alive(P::KEEP_ALIVE);
            if in_flight.answers() != answers {
                (answers, since) = (in_flight.answers(), now);
            }
            let Some(oldest) = in_flight.oldest().filter(|_| now.since(since) >= stall) else { continue };
            self.suspects.add(oldest, now);
            if stalled.group == Group::Trusted {
                // A stalled connection frees its permit for other calls.
                drop(stalled.permit.take());
            }
            if in_flight.has_others(oldest) {
                let unsent = stalled.moved.take().map(|moved| (moved, in_flight.take_unsent(Some(oldest))));
                if let Some((moved, unsent)) = unsent {
                    let _ = moved.send(unsent);
                }
            }
        }
    }

    fn ended(
        self: &Arc<Self>,
        done: Option<io::Result<()>>,
        connection: Connection<P>,
        mut in_flight: InFlight<'_>,
        (group, is_careful): (Group, bool),
    ) -> ConnectionOutcome {
        let now = self.now();
        in_flight.take_refusing().into_iter().for_each(|destination| self.suspects.add(destination, now));
        let (why, can_retry, is_late) = match done {
            Some(Ok(())) => {
                if group == Group::Trusted && is_careful && in_flight.is_complete() {
                    self.is_careful.store(false, Ordering::Relaxed);
                }
                if in_flight.went_well() {
                    self.idle.release(connection);
                }
                ("the broker refused the one before".to_owned(), true, false)
            }
            Some(Err(why)) => {
                let why = why.to_string();
                match (in_flight.under_way(), in_flight.oldest()) {
                    (1, Some(destination)) => self.suspects.add(destination, now),
                    (0, _) | (_, None) => {}
                    (_, Some(destination)) if group == Group::OwnConnection => {
                        self.careful.add(destination, now)
                    }
                    _ => self.is_careful.store(true, Ordering::Relaxed),
                }
                in_flight.cut(&Cut::Closed(&why));
                (why, in_flight.sent() > 0, false)
            }
            None => {
                // Slow, but the connection is still open.
                if group == Group::Trusted && is_careful && in_flight.answers() > 0 {
                    self.is_careful.store(false, Ordering::Relaxed);
                }
                in_flight.cut(&Cut::Late);
                ("no answer in time to what was sent before".to_owned(), false, true)
            }
        };
        let error = SinkError::unreachable(format!("not sent: {why}"));
        let error = if is_late { error.at_destination() } else { error };
        ConnectionOutcome { left: in_flight.take_unsent(None), error, can_retry }
    }
}

/// Released when a connection stalls.
struct Stalled<'a> {
    /// Takes the unsent messages to another connection.
    moved: Option<oneshot::Sender<Vec<usize>>>,
    permit: Option<SemaphorePermit<'a>>,
    group: Group,
}

/// The exchange of the messages in flight on one connection.
struct InFlightExchange<'a, 'f, P: Protocol> {
    protocol: &'a P,
    session: &'a P::Session,
    in_flight: &'a mut InFlight<'f>,
}

impl<P: Protocol> Exchange for InFlightExchange<'_, '_, P> {
    fn poll_write(&mut self, out: &mut BytesMut) {
        let before = out.len();
        // A message that this broker cannot accept adds nothing: continue with the next.
        while out.len() == before {
            let Some((number, delivery)) = self.in_flight.next_to_send() else { return };
            if let Err(error) = self.protocol.send(self.session, delivery, number, out) {
                self.in_flight.unfit(number, error);
            }
        }
    }

    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()> {
        self.protocol.on_read(self.session, self.in_flight, read, out)
    }

    fn is_over(&self) -> bool {
        self.in_flight.is_over()
    }
}
