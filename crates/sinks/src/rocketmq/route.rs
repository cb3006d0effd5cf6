//! Route cache: refreshed periodically, kept while no name server answers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::{Monotonic, SinkError};

use super::{
    connection::Connections,
    namesrv::{Master, NameServers, Queue, TopicQueues},
};

/// The topic whose queues are copied for a topic that is made by sending to it.
pub(super) const TEMPLATE: &str = "TBW102";
/// Queues of such a topic, at most: what we ask for when we send to it.
pub(super) const MADE_QUEUES: u32 = 4;
/// A route is asked for again after this, and after a failure.
const FRESH: Duration = Duration::from_secs(30);
/// The same for a topic that is about to be made.
const MADE_FRESH: Duration = Duration::from_secs(5);
/// A route that is known is not asked for more often than this, whatever happens.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Routes that are kept; with more topics than this, some are asked for again.
const KEPT: usize = 10_000;

/// All queues of a topic, in an order that is the same for everybody; at least one.
pub(super) type Route = Arc<Vec<Queue>>;

struct CachedRoute {
    route: Route,
    fresh_until: Monotonic,
    asked_at: Monotonic,
    /// A message that used this route was not accepted.
    is_doubted: bool,
}

/// The cached route of a topic.
pub(super) enum RouteLookup {
    /// Current: use it.
    Fresh(Route),
    /// Stale: use it and refresh it meanwhile.
    Old(Route),
    /// Unknown or in doubt: ask first.
    Unknown,
}

/// The cached routes.
pub(super) struct Routes {
    names: NameServers,
    connections: Arc<Connections>,
    cached: Mutex<HashMap<String, CachedRoute>>,
}

impl Routes {
    pub(super) fn new(namesrv: Vec<String>, connections: Arc<Connections>) -> Self {
        let names = NameServers::new(namesrv, connections.clone());
        Self { names, connections, cached: Mutex::default() }
    }

    /// The cached route, without a request.
    pub(super) fn lookup(&self, topic: &str) -> RouteLookup {
        let now = self.connections.now();
        match self.lock().get_mut(topic) {
            Some(cached) if !cached.is_doubted && now < cached.fresh_until => {
                RouteLookup::Fresh(cached.route.clone())
            }
            Some(cached) if now.since(cached.asked_at) < ASK_AGAIN => {
                RouteLookup::Fresh(cached.route.clone())
            }
            Some(cached) => {
                cached.asked_at = now;
                if cached.is_doubted { RouteLookup::Unknown } else { RouteLookup::Old(cached.route.clone()) }
            }
            None => RouteLookup::Unknown,
        }
    }

    /// Asks the name servers. If they do not answer, the last route that they told of still counts.
    pub(super) async fn ask(&self, topic: &str, end: Monotonic) -> Result<Route, SinkError> {
        match self.names.queues(topic, end).await {
            Ok(TopicQueues::Queues(queues)) => Ok(self.remember(topic, queues, FRESH)),
            Ok(TopicQueues::NoMaster) => {
                let detail = format!("no master takes messages of the topic {topic:?} now");
                Err(SinkError::unreachable(detail).at_destination())
            }
            Ok(TopicQueues::NoTopic) => self.make(topic, end).await,
            Err(failure) => self.last(topic).map(|(route, _)| route).ok_or(failure),
        }
    }

    /// The route of a topic from the name servers, without the cache.
    pub(super) async fn found(&self, topic: &str, end: Monotonic) -> Result<TopicQueues, SinkError> {
        self.names.queues(topic, end).await
    }

    /// The route of a topic that the name servers do not know.
    async fn make(&self, topic: &str, end: Monotonic) -> Result<Route, SinkError> {
        let last = self.last(topic);
        // A restarted name server knows no topic until brokers register, and they accept messages meanwhile.
        if let Some((route, false)) = last {
            return Ok(route);
        }
        // The topic does not exist yet: sending creates it where a broker allows that.
        match self.names.queues(TEMPLATE, end).await {
            Ok(TopicQueues::Queues(mut queues)) => {
                // The broker makes no more than we ask for: a higher number would be refused.
                queues.retain(|queue| queue.number < MADE_QUEUES);
                return Ok(self.remember(topic, queues, MADE_FRESH));
            }
            Ok(TopicQueues::NoMaster | TopicQueues::NoTopic) => {}
            Err(failure) => return last.map(|(route, _)| route).ok_or(failure),
        }
        let masters = self.names.masters(end).await;
        let last = last.map(|(route, _)| route);
        match (last, masters) {
            (Some(route), Ok(masters)) if masters.is_empty() => Ok(route),
            (Some(route), Err(_)) => Ok(route),
            (Some(route), Ok(masters)) if !route.iter().all(|queue| is_among(&masters, queue)) => {
                let detail = format!("no broker has the topic {topic:?} now, and one that had it is away");
                Err(SinkError::unreachable(detail).at_destination())
            }
            (None, Ok(masters)) if masters.is_empty() => {
                Err(SinkError::unreachable("the name servers know no broker"))
            }
            (None, Err(failure)) => Err(failure),
            (_, Ok(_)) => {
                let detail = format!("no broker has the topic {topic:?}: make it");
                Err(SinkError::denied(detail))
            }
        }
    }

    /// A message was not accepted: ask before the next is sent.
    pub(super) fn doubt(&self, topic: &str) {
        if let Some(cached) = self.lock().get_mut(topic) {
            cached.is_doubted = true;
        }
    }

    /// The brokers that take messages, at least one: as the name servers know them or, if they do not answer, as we do.
    pub(super) async fn masters(&self, end: Monotonic) -> Result<Vec<Master>, SinkError> {
        let failure = match self.names.masters(end).await {
            Ok(masters) if !masters.is_empty() => return Ok(masters),
            Ok(_) => SinkError::unreachable("the name servers know no broker"),
            Err(failure) => failure,
        };
        let mut addresses: Vec<Arc<str>> = Vec::new();
        for queue in self.lock().values().flat_map(|cached| cached.route.iter()) {
            if !addresses.contains(&queue.address) {
                addresses.push(queue.address.clone());
            }
        }
        let cached: Vec<_> = addresses.into_iter().map(|address| Master { address, slaves: 0 }).collect();
        if cached.is_empty() { Err(failure) } else { Ok(cached) }
    }

    fn remember(&self, topic: &str, queues: Vec<Queue>, fresh: Duration) -> Route {
        let (now, route) = (self.connections.now(), Arc::new(queues));
        let mut all = self.lock();
        if all.len() >= KEPT && !all.contains_key(topic) {
            all.clear();
        }
        let fresh_until = now.saturating_add(fresh);
        let cached = CachedRoute { route: route.clone(), fresh_until, asked_at: now, is_doubted: false };
        all.insert(topic.to_owned(), cached);
        route
    }

    /// The last known route, and whether it is in doubt.
    fn last(&self, topic: &str) -> Option<(Route, bool)> {
        self.lock().get(topic).map(|cached| (cached.route.clone(), cached.is_doubted))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, CachedRoute>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_among(masters: &[Master], queue: &Queue) -> bool {
    masters.iter().any(|master| master.address == queue.address)
}
