//! Sends the messages of a call for one broker over one connection.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use duly_core::{Delivery, Monotonic, Sleep};

use super::{
    RocketmqSink,
    call::{Pending, SendCall},
    connection::Connection,
    failure::{self, About, Failure},
    frame::Code,
    message,
    namesrv::Queue,
    window::Window,
};

/// Time limit of a connection to a broker.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// A broker that is silent for this long with messages in flight is avoided by messages that have another.
const SILENT: Duration = Duration::from_secs(2);

impl<'a> SendCall<'a> {
    /// Sends these to one broker. Returns those that it rejected and another may accept.
    pub(super) async fn send(
        &self,
        address: &Arc<str>,
        chosen: Vec<(Queue, Pending<'a>)>,
    ) -> Vec<Pending<'a>> {
        let (connections, brokers) = (&self.sink.connections, &self.sink.brokers);
        let connect_until = self.begin_until.min(connections.now().saturating_add(CONNECT_LIMIT));
        match connections.open(address, connect_until).await {
            Ok(connection) => self.exchange(address, connection, chosen).await,
            Err(why) => {
                brokers.down(address, connections.now());
                let failure = failure::connect_failed("the broker", address, &why);
                let all = chosen.into_iter().map(|(_, each)| each);
                all.filter_map(|each| self.turned_away(address, each, failure.clone())).collect()
            }
        }
    }

    async fn exchange(
        &self,
        address: &Arc<str>,
        mut connection: Connection,
        chosen: Vec<(Queue, Pending<'a>)>,
    ) -> Vec<Pending<'a>> {
        let sink = self.sink;
        let born_ms = sink.clock.now().wall().as_millis();
        let requests: Vec<(Queue, &Delivery)> =
            chosen.iter().map(|(queue, each)| (queue.clone(), each.delivery)).collect();
        let mut add = |out: &mut BytesMut, index: usize| {
            let Some((queue, delivery)) = requests.get(index) else { return };
            let fields = message::fields(delivery, queue, born_ms);
            sink.connections.add(out, Code::Send, index, fields, delivery.message.body.as_bytes());
        };
        let mut left: Vec<_> = chosen.into_iter().map(|(_, each)| Some(each)).collect();
        let mut rest = Vec::new();
        let mut window = Window::over(&mut connection, left.len());
        let mut silence = Silence::begin(sink, address);
        let mut end = sink.clock.sleep_until(self.end);
        let why = loop {
            if window.is_done() {
                sink.connections.release(connection);
                return rest;
            }
            tokio::select! {
                biased;
                answer = window.next(&mut add) => match answer {
                    Ok((index, answer)) => {
                        silence.broken();
                        let Some(each) = left.get_mut(index).and_then(Option::take) else { continue };
                        match failure::receipt(&answer, sink.accept_weaker) {
                            Ok(receipt) => self.outcomes.report(each.index, Ok(receipt)),
                            Err(failure) => rest.extend(self.turned_away(address, each, failure)),
                        }
                    }
                    Err(why) => {
                        sink.brokers.down(address, sink.connections.now());
                        break failure::lost(&why, window.is_answered());
                    }
                },
                () = &mut end => {
                    silence.ended();
                    break Failure::no_answer("no answer in time");
                }
                () = silence.lasts() => {}
            }
        };
        for (index, each) in left.into_iter().enumerate() {
            let Some(mut each) = each else { continue };
            if window.may_be_sent(index) {
                each.failure = Some(why.clone());
                self.fail(each);
            } else {
                let unsent = Failure::unsent(format!("it was not sent: {}", why.detail));
                rest.extend(self.turned_away(address, each, unsent));
            }
        }
        rest
    }

    /// The broker does not have the message. Returns it if there is another broker to try, and time.
    fn turned_away(
        &self,
        address: &Arc<str>,
        mut each: Pending<'a>,
        failure: Failure,
    ) -> Option<Pending<'a>> {
        let (about, now) = (failure.about, self.sink.connections.now());
        each.failure = Some(failure);
        if about == About::Broker {
            self.sink.brokers.avoid(address, now);
            each.tried.push(address.clone());
            if now < self.begin_until && each.route.iter().any(|queue| !each.tried.contains(&queue.address)) {
                return Some(each);
            }
        }
        self.fail(each);
        None
    }
}

/// Watches a broker for silence during one call.
struct Silence<'a> {
    sink: &'a RocketmqSink,
    address: &'a Arc<str>,
    since: Monotonic,
    /// Whether the broker is known to answer.
    is_there: bool,
    timer: Sleep,
}

impl<'a> Silence<'a> {
    fn begin(sink: &'a RocketmqSink, address: &'a Arc<str>) -> Self {
        let since = sink.connections.now();
        let timer = sink.clock.sleep_until(since.saturating_add(SILENT));
        Self { sink, address, since, is_there: false, timer }
    }

    /// An answer came.
    fn broken(&mut self) {
        self.since = self.sink.connections.now();
        if !self.is_there {
            self.is_there = true;
            self.sink.brokers.answered(self.address, self.since);
        }
    }

    /// Waits until there was no answer for [`SILENT`], and marks the broker as one to avoid.
    async fn lasts(&mut self) {
        (&mut self.timer).await;
        let now = self.sink.connections.now();
        let mut again = self.since.saturating_add(SILENT);
        if again <= now {
            self.is_there = false;
            self.sink.brokers.avoid(self.address, now);
            again = now.saturating_add(SILENT);
        }
        self.timer = self.sink.clock.sleep_until(again);
    }

    /// The call timed out with messages unanswered.
    fn ended(&self) {
        let now = self.sink.connections.now();
        if now.since(self.since) >= SILENT {
            self.sink.brokers.down(self.address, now);
        }
    }
}
