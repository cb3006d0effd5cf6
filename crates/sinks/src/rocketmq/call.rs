//! One delivery call: sends each message to a queue of its topic, and reports each outcome when it is known.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use duly_core::{Delivery, Monotonic, Outcomes, SinkError, SinkErrorKind};
use futures_util::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, FuturesUnordered},
};

use super::{
    RocketmqSink,
    brokers::Preference,
    failure::Failure,
    message,
    namesrv::Queue,
    route::{Route, RouteLookup},
};

/// Topics whose routes are asked for at the same time.
const ASKED: usize = 8;

/// A call under way.
pub(super) struct SendCall<'a> {
    pub(super) sink: &'a RocketmqSink,
    pub(super) outcomes: &'a Outcomes<'a>,
    /// Connections must stand by this.
    pub(super) begin_until: Monotonic,
    /// Answers must be there by this.
    pub(super) end: Monotonic,
}

/// A message without an outcome.
pub(super) struct Pending<'a> {
    pub(super) index: usize,
    pub(super) delivery: &'a Delivery,
    pub(super) route: Route,
    /// Brokers that rejected it, and the error of the last.
    pub(super) tried: Vec<Arc<str>>,
    pub(super) failure: Option<Failure>,
}

impl<'a> SendCall<'a> {
    /// Delivers the batch. Messages with a known route are sent at once, others when their route arrives.
    pub(super) async fn run(&self, batch: &'a [Delivery]) {
        let mut topics: BTreeMap<&str, Vec<(usize, &'a Delivery)>> = BTreeMap::new();
        for (index, delivery) in batch.iter().enumerate() {
            match message::check(&delivery.message) {
                Err(fault) => self.outcomes.report(index, Err(SinkError::never(&fault))),
                Ok(()) => topics.entry(delivery.message.topic.as_str()).or_default().push((index, delivery)),
            }
        }
        let (mut ready, mut unknown, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (topic, messages) in topics {
            match self.sink.routes.lookup(topic) {
                RouteLookup::Fresh(route) => ready.extend(pending(messages, &route)),
                RouteLookup::Old(route) => {
                    old.push(topic);
                    ready.extend(pending(messages, &route));
                }
                RouteLookup::Unknown => unknown.push((topic, messages)),
            }
        }
        let mut asking: Vec<BoxFuture<'_, ()>> = Vec::new();
        for (topic, messages) in unknown {
            asking.push(Box::pin(self.ask_and_send(topic, messages)));
        }
        for topic in old {
            asking.push(Box::pin(self.refresh(topic)));
        }
        let mut asking = stream::iter(asking).buffer_unordered(ASKED);
        let asking = async { while asking.next().await.is_some() {} };
        tokio::join!(self.send_all(ready), asking, self.recheck());
    }

    async fn ask_and_send(&self, topic: &str, messages: Vec<(usize, &'a Delivery)>) {
        match self.sink.routes.ask(topic, self.begin_until).await {
            Ok(route) => self.send_all(pending(messages, &route).collect()).await,
            Err(error) => {
                messages.iter().for_each(|(index, _)| self.outcomes.report(*index, Err(error.clone())));
            }
        }
    }

    async fn refresh(&self, topic: &str) {
        // An error shows when a message uses the route.
        let _ = self.sink.routes.ask(topic, self.begin_until).await;
    }

    /// Sends heartbeats to brokers that are down. No message is sent to them before they answer.
    async fn recheck(&self) {
        let due = self.sink.brokers.to_recheck(self.sink.connections.now());
        join_all(due.iter().map(|address| self.sink.heartbeat(address, self.begin_until))).await;
    }

    /// Sends each message to a queue of a broker that is up, and what one broker rejects to another.
    fn send_all<'s>(&'s self, all: Vec<Pending<'a>>) -> BoxFuture<'s, ()> {
        Box::pin(async move {
            let (mut brokers, mut stranded) = (BTreeMap::<Arc<str>, Vec<_>>::new(), Vec::new());
            for each in all {
                match self.choose(&each) {
                    Some((Preference::Down, _)) => stranded.push(each),
                    Some((_, queue)) => {
                        brokers.entry(queue.address.clone()).or_default().push((queue, each));
                    }
                    None => self.fail(each),
                }
            }
            let sending = brokers.into_iter().map(|(address, chosen)| async move {
                let rest = self.send(&address, chosen).await;
                if !rest.is_empty() {
                    self.send_all(rest).await;
                }
            });
            tokio::join!(join_all(sending), self.revive(stranded));
        })
    }

    /// All brokers of these messages are down: sends heartbeats, and the messages when a broker answers.
    async fn revive(&self, mut stranded: Vec<Pending<'a>>) {
        let mut addresses: Vec<Arc<str>> = Vec::new();
        for queue in stranded.iter().flat_map(|each| each.route.iter()) {
            if !addresses.contains(&queue.address) {
                addresses.push(queue.address.clone());
            }
        }
        let pending = addresses.iter().map(|address| self.sink.heartbeat(address, self.begin_until));
        let mut pending: FuturesUnordered<_> = pending.collect();
        let mut failed: Option<Failure> = None;
        let mut sending = FuturesUnordered::new();
        loop {
            let answer = tokio::select! {
                Some(()) = sending.next() => continue,
                Some(answer) = pending.next() => answer,
                else => break,
            };
            match answer {
                Ok(()) => {
                    let (back, still): (Vec<_>, Vec<_>) = stranded
                        .into_iter()
                        .partition(|each| self.choose(each).is_some_and(|(how, _)| how != Preference::Down));
                    stranded = still;
                    sending.push(self.send_all(back));
                }
                Err(failure) => failed = Some(failure),
            }
        }
        for mut each in stranded {
            each.failure = each.failure.or_else(|| failed.clone());
            each.tried.extend(addresses.iter().cloned());
            self.fail(each);
        }
    }

    /// The best queue of a broker that has not rejected the message.
    ///
    /// A key has its queue, as with RocketMQ's own selector by hash, as long as the broker of that queue is there.
    fn choose(&self, each: &Pending<'_>) -> Option<(Preference, Queue)> {
        let now = self.sink.connections.now();
        let how = |queue: &Queue| self.sink.brokers.of(&queue.address, now);
        let key = each.delivery.message.key.as_ref();
        let turn = key.map_or_else(|| self.sink.turn.fetch_add(1, Ordering::Relaxed), |_| 0);
        let pick = |count: usize| {
            key.map_or_else(|| turn % count.max(1), |key| message::queue_index(key.as_str(), count))
        };
        let first = each.route.get(pick(each.route.len()))?;
        if each.tried.is_empty() && how(first) == Preference::Good {
            return Some((Preference::Good, first.clone()));
        }
        let left = each.route.iter().filter(|queue| !each.tried.contains(&queue.address));
        let left: Vec<_> = left.map(|queue| (how(queue), queue)).collect();
        let best = left.iter().map(|(how, _)| *how).min()?;
        let best: Vec<_> = left.into_iter().filter(|(how, _)| *how == best).collect();
        best.get(pick(best.len())).map(|(how, queue)| (*how, (*queue).clone()))
    }

    /// Reports why the message was not accepted.
    pub(super) fn fail(&self, each: Pending<'_>) {
        let failure = each.failure.unwrap_or_else(|| Failure::unsent("its topic has no queue"));
        if !matches!(failure.kind, SinkErrorKind::Refused | SinkErrorKind::Throttled) {
            // The topic may have moved, or be gone.
            self.sink.routes.doubt(each.delivery.message.topic.as_str());
        }
        let has_others = self.sink.brokers.has_others(&each.tried, self.sink.connections.now());
        self.outcomes.report(each.index, Err(failure.error(has_others)));
    }
}

fn pending<'a>(
    messages: Vec<(usize, &'a Delivery)>,
    route: &Route,
) -> impl Iterator<Item = Pending<'a>> + use<'a> {
    let route = route.clone();
    messages.into_iter().map(move |(index, delivery)| Pending {
        index,
        delivery,
        route: route.clone(),
        tried: Vec::new(),
        failure: None,
    })
}
