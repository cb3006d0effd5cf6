#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod frame;
mod message;
mod route;
mod settings;
mod sign;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};
use futures_util::future::join_all;

pub use config::RocketmqConfig;
use failure::{SUCCESS, no_answer, no_connection};
use frame::{Answer, Code};
use route::{Queue, Route, Routes};
use settings::Settings;
use wire::{Wire, Wires};

/// Sends to RocketMQ.
pub struct RocketmqSink {
    routes: Routes,
    wires: Wires,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    /// Whose turn it is, for messages that may go to any queue.
    turn: AtomicUsize,
}

type Outcome = Result<String, SinkError>;

/// On one connection so many wait for their answers, at most: brokers turn away what they could not look at for 200 ms.
const WINDOW: usize = 64;

/// A message, its place in the call, and the queue that it goes to.
struct Chosen<'a> {
    place: usize,
    delivery: &'a Delivery,
    queue: Queue,
}

impl RocketmqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let wires = Wires::new(settings.tls, settings.signer);
        let routes = Routes::new(settings.namesrv);
        Self { routes, wires, timeout: settings.timeout, clock, turn: AtomicUsize::new(0) }
    }

    /// The ends of a call: connections must stand by the first, answers must be there by the second.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        (now.saturating_add(self.timeout / 2), now.saturating_add(self.timeout))
    }

    async fn within<T>(&self, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// Where each of these topics is.
    async fn routes(
        &self,
        topics: BTreeSet<&str>,
        end: Monotonic,
    ) -> HashMap<String, Result<Route, SinkError>> {
        let mut routes = HashMap::new();
        for topic in topics {
            let route = self.within(end, self.routes.of(topic, &self.wires, &*self.clock)).await;
            let route = route.unwrap_or_else(|| Err(no_connection("the name servers do not answer")));
            routes.insert(topic.to_owned(), route);
        }
        routes
    }

    fn choose(&self, delivery: &Delivery, route: &Route) -> Option<Queue> {
        let place = match &delivery.message.key {
            Some(key) => message::place(key.as_str(), route.len()),
            None => self.turn.fetch_add(1, Ordering::Relaxed) % route.len().max(1),
        };
        route.get(place).cloned()
    }

    /// Sends these to the broker at `address`, many before the first answer is waited for.
    async fn send(
        &self,
        address: &str,
        chosen: Vec<Chosen<'_>>,
        ends: (Monotonic, Monotonic),
    ) -> Vec<(usize, Outcome)> {
        let now = self.clock.now();
        let wire = self.within(ends.0, self.wires.to(address, now.mono())).await;
        let wire = wire.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        let mut wire = match wire {
            Ok(wire) => wire,
            Err(why) => {
                let error = failure::unconnected("the broker", address, &why);
                return chosen.into_iter().map(|each| (each.place, Err(error.clone()))).collect();
            }
        };
        let mut outcomes = Vec::with_capacity(chosen.len());
        let mut broken = None;
        for some in chosen.chunks(WINDOW) {
            if let Some(why) = &broken {
                let unsent = no_connection(format!("it was not sent: {why}"));
                outcomes.extend(some.iter().map(|each| (each.place, Err(unsent.clone()))));
                continue;
            }
            let (answers, done) = self.exchange(&mut wire, some, now.wall().as_millis(), ends.1).await;
            broken = done.err();
            let words = broken.clone().unwrap_or_else(|| "it was left unanswered".into());
            let missing = || Err(no_answer(words.clone()));
            let told = some.iter().zip(answers);
            outcomes.extend(
                told.map(|(each, answer)| (each.place, answer.map_or_else(missing, |it| receipt(&it)))),
            );
        }
        if broken.is_none() {
            self.wires.give_back(wire, self.clock.now().mono());
        }
        outcomes
    }

    /// Sends these at once: the answers that came, and why no more did.
    async fn exchange(
        &self,
        wire: &mut Wire,
        chosen: &[Chosen<'_>],
        now_ms: u64,
        end: Monotonic,
    ) -> (Vec<Option<Answer>>, Result<(), String>) {
        let mut requests = self.wires.requests();
        for each in chosen {
            let fields = message::fields(each.delivery, &each.queue, now_ms);
            self.wires.add(&mut requests, Code::Send, fields, each.delivery.message.body.as_bytes());
        }
        let mut answers = vec![None; chosen.len()];
        let done = match self.within(end, wire.exchange(&requests, &mut answers)).await {
            Some(done) => done.map_err(|why| format!("the broker: {why}")),
            None => Err("no answer in time".into()),
        };
        (answers, done)
    }
}

/// Taken by the broker, or why not.
fn receipt(answer: &Answer) -> Outcome {
    if answer.code != SUCCESS {
        return Err(failure::sorted(answer));
    }
    let field = |name: &str| answer.fields.get(name).map_or("?", String::as_str);
    Ok(format!("{} {}:{}", field("msgId"), field("queueId"), field("queueOffset")))
}

impl RocketmqSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let ends = self.ends();
        let mut outcomes: Vec<Option<Outcome>> =
            batch.iter().map(|delivery| message::check(delivery).map(Err)).collect();
        let fit = |place: &usize| outcomes[*place].is_none();
        let fit: Vec<usize> = (0..batch.len()).filter(fit).collect();
        let topics = fit.iter().map(|place| batch[*place].message.topic.as_str()).collect();
        let routes = self.routes(topics, ends.0).await;
        let mut brokers: BTreeMap<Arc<str>, Vec<Chosen<'_>>> = BTreeMap::new();
        for place in fit {
            let delivery = &batch[place];
            let queue = match routes.get(delivery.message.topic.as_str()) {
                Some(Ok(route)) => self.choose(delivery, route).ok_or_else(|| no_connection("no queue")),
                Some(Err(failure)) => Err(failure.clone()),
                None => Err(no_connection("no route")),
            };
            match queue {
                Ok(queue) => {
                    let chosen = Chosen { place, delivery, queue };
                    brokers.entry(chosen.queue.address.clone()).or_default().push(chosen);
                }
                Err(failure) => outcomes[place] = Some(Err(failure)),
            }
        }
        let sending = brokers
            .into_iter()
            .map(|(address, chosen)| async move { self.send(&address, chosen, ends).await });
        for (place, outcome) in join_all(sending).await.into_iter().flatten() {
            if outcome.is_err() {
                // The topic may have moved, or be gone.
                self.routes.doubt(batch[place].message.topic.as_str());
            }
            outcomes[place] = Some(outcome);
        }
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "it was left unanswered"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }
}

#[async_trait]
impl Sink for RocketmqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Asks a name server for the brokers, and tells one of them that we are here, as who we are. Nothing is written.
    async fn probe(&self) -> Result<(), SinkError> {
        let ends = self.ends();
        let asked = self.within(ends.0, self.routes.brokers(&self.wires, &*self.clock)).await;
        let brokers = asked.unwrap_or_else(|| Err(no_connection("the name servers do not answer")))?;
        let mut failed = no_connection("there is no broker");
        for address in brokers {
            let (now, body) = (self.clock.now().mono(), message::heartbeat());
            let told = self.wires.ask(&address, now, Code::Heartbeat, BTreeMap::new(), body.as_bytes());
            failed = match self.within(ends.1, told).await {
                Some(Ok(answer)) if answer.code == SUCCESS => return Ok(()),
                Some(Ok(answer)) => probed(failure::sorted(&answer)),
                Some(Err(why)) => failure::unconnected("the broker", &address, &why),
                None => no_connection(format!("the broker at {address} does not answer")),
            };
        }
        Err(failed)
    }
}

/// A probe sends nothing that could arrive: what it does not know for certain means that the target is away.
fn probed(error: SinkError) -> SinkError {
    let kind = if error.kind == SinkErrorKind::Unknown { SinkErrorKind::Unreachable } else { error.kind };
    SinkError { kind, ..error }
}
