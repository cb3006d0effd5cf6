//! Sends the messages of a call for one broker over one connection.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;

use super::{
    call::{Pending, SendCall},
    connection::Connection,
    failure::{self, About, BatchRefusal, Failure},
    frame::Response,
    namesrv::Queue,
    receipt::receipts,
    request::{self, Request},
    silence::Silence,
    window::Window,
};

/// Time limit of a connection to a broker.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

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
            Ok(connection) => {
                let requests = request::group(chosen, brokers.batch_bytes_max(address));
                self.exchange(address, connection, requests).await
            }
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
        requests: Vec<Request<'a>>,
    ) -> Vec<Pending<'a>> {
        let sink = self.sink;
        let born_ms = sink.clock.now().wall().as_millis();
        let mut left: Vec<_> = requests.into_iter().map(Some).collect();
        let mut rest = Vec::new();
        let mut window = Window::over(&mut connection, left.len());
        let mut silence = Silence::begin(sink, address);
        let mut end = sink.clock.sleep_until(self.end);
        let why = loop {
            if window.is_done() {
                sink.connections.release(connection);
                return rest;
            }
            let mut add = |out: &mut BytesMut, index: usize| {
                if let Some(Some(request)) = left.get(index) {
                    request.add(&sink.connections, out, index, born_ms);
                }
            };
            tokio::select! {
                biased;
                answer = window.next(&mut add) => match answer {
                    Ok((index, answer)) => {
                        silence.broken();
                        let Some(request) = left.get_mut(index).and_then(Option::take) else { continue };
                        let again = self.answered(address, request, &answer, &mut rest);
                        window.extend(again.len());
                        left.extend(again.into_iter().map(Some));
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
        for (index, request) in left.into_iter().enumerate() {
            let messages = request.map_or_else(Vec::new, |request| request.messages);
            if window.may_be_sent(index) {
                messages
                    .into_iter()
                    .for_each(|each| self.fail(Pending { failure: Some(why.clone()), ..each }));
            } else {
                let unsent = Failure::unsent(format!("it was not sent: {}", why.detail));
                rest.extend(self.all_turned_away(address, messages, &unsent));
            }
        }
        rest
    }

    /// A request was answered. Returns those that take its place, and adds to `rest` what another broker may accept.
    fn answered(
        &self,
        address: &Arc<str>,
        request: Request<'a>,
        answer: &Response,
        rest: &mut Vec<Pending<'a>>,
    ) -> Vec<Request<'a>> {
        let refusal = if request.is_batch() { failure::batch_refusal(answer) } else { None };
        match refusal {
            Some(BatchRefusal::Unsupported) => {
                self.sink.brokers.limit_batches(address, 0);
                return request.singly();
            }
            Some(BatchRefusal::TooLarge) => {
                self.sink.brokers.limit_batches(address, request.bytes() / 2);
                return request.halves();
            }
            Some(BatchRefusal::Illegal) => return request.halves(),
            None => {}
        }
        match receipts(answer, request.messages.len(), self.sink.accept_weaker) {
            Ok(receipts) => {
                for (each, receipt) in request.messages.iter().zip(receipts) {
                    self.outcomes.report(each.index, Ok(receipt));
                }
            }
            Err(failure) => rest.extend(self.all_turned_away(address, request.messages, &failure)),
        }
        Vec::new()
    }

    fn all_turned_away(
        &self,
        address: &Arc<str>,
        messages: Vec<Pending<'a>>,
        failure: &Failure,
    ) -> impl Iterator<Item = Pending<'a>> {
        messages.into_iter().filter_map(|each| self.turned_away(address, each, failure.clone()))
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
