#![doc = include_str!("docs.md")]

mod append;
mod config;
mod failure;
mod link;
mod settings;
mod slot;

use std::sync::Arc;

use async_trait::async_trait;
use duly_core::{Clock, Delivery, ErrorScope, Invalid, Monotonic, Outcomes, Sink, SinkError, StoredMessage};
use futures_util::StreamExt;
use redis::RedisError;

use append::Append;
pub use config::RedisStreamsConfig;
use failure::FailureScope;
use link::{Connection, Link};
use settings::Settings;

use crate::{Finding, within::within};

/// Appends to Redis Streams.
pub struct RedisStreamsSink {
    link: Link,
    append: Append,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

/// The part of a call's time in which a cluster is asked whether it lives, if one of its servers does not answer.
const MARGIN: u32 = 8;

impl RedisStreamsSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        let link = Link::new(&settings)?;
        Ok(Self { link, append: Append::new(&settings), settings, clock })
    }

    async fn inspect(&self, topics: &[&str]) -> Vec<Finding> {
        let (begin_until, end) = self.ends();
        let Some(Ok(mut connection)) = within(&*self.clock, begin_until, self.link.connection()).await else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        let work = async {
            for topic in topics {
                findings.extend(self.append.inspect(&mut connection, topic).await);
            }
        };
        // What was found until then is worth telling.
        let _ = within(&*self.clock, end, work).await;
        findings
    }

    /// The ends of a call: a connection must stand by the first, answers must be there by the second.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        let after = |span| now.saturating_add(span);
        (after(self.settings.timeout / 2), after(self.settings.timeout))
    }

    /// Sends these, which the stream may take for all that we know, and reports each by its index.
    async fn send(&self, indexes: &[usize], batch: &[&Delivery], outcomes: &Outcomes<'_>) {
        let all =
            |error: SinkError| indexes.iter().for_each(|index| outcomes.report(*index, Err(error.clone())));
        let (begin_until, end) = self.ends();
        let connection = match within(&*self.clock, begin_until, self.link.connection()).await {
            Some(Ok(connection)) => connection,
            Some(Err(failure)) => return all(failure),
            None => return all(SinkError::unreachable("no connection in time")),
        };
        let mut open = vec![true; batch.len()];
        let (mut is_broken, mut checks) = (false, CallChecks::default());
        // What is left of the time tells a silent server of a cluster from a silent cluster.
        let margin = self.settings.timeout / MARGIN;
        let now = self.clock.now().mono();
        let answers_until = now.saturating_add(end.since(now).saturating_sub(margin));
        let work = async {
            let mut answers = self.append.send(&connection, batch);
            while let Some(slice) = answers.next().await {
                for (position, answer) in slice {
                    let outcome = match answer {
                        Ok(entry) => Ok(entry),
                        Err(error) => {
                            is_broken |= failure::is_the_wires(&error);
                            Err(self.sorted(&error, &connection, batch[position], &mut checks).await)
                        }
                    };
                    open[position] = false;
                    outcomes.report(indexes[position], outcome);
                }
            }
        };
        let in_time = within(&*self.clock, answers_until, work).await.is_some();
        let mut silent = SinkError::unknown("no answer in time");
        let is_local = !in_time && connection.is_cluster() && self.is_there(&connection).await;
        if is_local {
            silent = silent.at_destination();
        }
        // Told first, as another call may be connecting.
        for position in (0..open.len()).filter(|position| open[*position]) {
            outcomes.report(indexes[position], Err(silent.clone()));
        }
        if !is_local
            && (!in_time || (is_broken && (!connection.is_cluster() || checks.is_there == Some(false))))
        {
            // Whatever hangs there, the next call does not wait for it.
            self.link.drop_connection(&connection).await;
        }
    }

    /// Whether the target answers, in what is left of a call.
    async fn is_there(&self, connection: &Connection) -> bool {
        let until = self.clock.now().mono().saturating_add(self.settings.timeout / MARGIN);
        let reply = within(&*self.clock, until, connection.clone().ask_how_it_is(self.append.sha())).await;
        reply.is_some_and(|reply| reply.is_ok())
    }

    /// A failure, and how much of the target it is about. What its words leave open is asked once in a call.
    async fn sorted(
        &self,
        error: &RedisError,
        connection: &Connection,
        delivery: &Delivery,
        checks: &mut CallChecks,
    ) -> SinkError {
        let (failure, doubt) = failure::sorted(error, connection.is_cluster());
        let is_all = match doubt {
            None => return failure,
            Some(FailureScope::Keys) => {
                let topic = delivery.message.topic.as_str();
                if checks.keys.as_ref().is_none_or(|(own, _)| own != topic) {
                    let lacks = self.append.lacks_keys_beside(connection.clone(), delivery).await;
                    checks.keys = Some((topic.to_owned(), lacks));
                }
                checks.keys.as_ref().is_some_and(|(_, lacks)| *lacks)
            }
            Some(FailureScope::Servers) => {
                if checks.is_there.is_none() {
                    checks.is_there = Some(self.is_there(connection).await);
                }
                checks.is_there == Some(false)
            }
        };
        match doubt {
            Some(FailureScope::Keys) if is_all => SinkError::misconfigured(format!(
                "{}: give this user the keys duly:mark:* and duly:rights:*",
                failure.detail
            )),
            _ if is_all => failure.about(ErrorScope::Target),
            _ => failure,
        }
    }
}

/// What was asked in a call.
#[derive(Default)]
struct CallChecks {
    /// Of the stream asked for last, whether the keys beside it are forbidden.
    keys: Option<(String, bool)>,
    /// Whether the cluster answers.
    is_there: Option<bool>,
}

#[async_trait]
impl Sink for RedisStreamsSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let (mut indexes, mut fit) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (index, delivery) in batch.iter().enumerate() {
            match append::check(&delivery.message) {
                Err(fault) => outcomes.report(index, Err(SinkError::never(&fault))),
                Ok(()) => {
                    indexes.push(index);
                    fit.push(delivery);
                }
            }
        }
        if !fit.is_empty() {
            self.send(&indexes, &fit, outcomes).await;
        }
    }

    /// Connects, if need be, and asks whether scripts may be run. Nothing is written.
    async fn probe(&self) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let connection = within(&*self.clock, begin_until, self.link.connection()).await;
        let connection =
            connection.unwrap_or_else(|| Err(SinkError::unreachable("no connection in time")))?;
        let reply = within(&*self.clock, end, connection.clone().ask_how_it_is(self.append.sha())).await;
        let reply = reply.unwrap_or_else(|| Err(SinkError::unreachable("no answer to a ping in time")));
        if reply.is_err() {
            self.link.drop_connection(&connection).await;
        }
        reply
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        append::check(message)
    }

    async fn settled(&self, delivered: &[Delivery]) {
        let (_, end) = self.ends();
        let forget = async {
            if let Ok(connection) = self.link.connection().await {
                self.append.forget(connection, delivered).await;
            }
        };
        // If it does not work out, the markers go by themselves in time.
        let _ = within(&*self.clock, end, forget).await;
    }
}
