#![doc = include_str!("docs.md")]

mod call;
mod config;
mod confirm_pace;
mod connection;
mod failure;
mod link;
mod message;
mod publisher;
mod returned_queues;
mod rights;
mod settings;
mod trial;
mod trust;
mod verdict;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, StoredMessage};
use lapin::{ExchangeKind, options::ExchangeDeclareOptions, types::FieldTable};

use call::{Broker, PublishCall, Times};
pub use config::RabbitmqConfig;
use connection::BrokerConnection;
use link::Link;
use message::OutgoingMessage;
use settings::Settings;

use crate::{Finding, within::within};

/// Publishes to RabbitMQ.
pub struct RabbitmqSink {
    link: Link,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

type Outcome = Result<String, SinkError>;

/// Opens a connection for a consumer. Fails if it takes longer than `time_limit`.
pub async fn connect(
    config: &RabbitmqConfig,
    clock: &dyn Clock,
    time_limit: Duration,
) -> Result<lapin::Connection, SinkError> {
    match Settings::read(config) {
        Ok(settings) => link::connect(&settings, clock, time_limit, &AtomicUsize::new(0)).await,
        Err(mut faults) => Err(SinkError::misconfigured(faults.swap_remove(0).to_string())),
    }
}

impl RabbitmqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { link: Link::default(), settings, clock }
    }

    fn after(&self, span: Duration) -> Monotonic {
        self.clock.now().mono().saturating_add(span)
    }

    /// The connection, which must stand within half of the time of a call.
    async fn connection(&self) -> Result<BrokerConnection, SinkError> {
        let time_limit = self.settings.timeout / 2;
        let connection = self.link.connection(&self.settings, &self.clock, time_limit);
        let connection = within(&*self.clock, self.after(time_limit), connection).await;
        let connection =
            connection.unwrap_or_else(|| Err(SinkError::unreachable("no connection in time")))?;
        match connection.is_blocked() {
            Some(reason) => Err(failure::blocked(&reason)),
            None => Ok(connection),
        }
    }

    /// Warnings: a missing exchange or queue, a user that may not publish. AMQP has no query for what queues do with a message.
    async fn inspect(&self, topics: &[&str]) -> Vec<Finding> {
        let end = self.after(self.settings.timeout);
        let Ok(connection) = self.connection().await else { return Vec::new() };
        let routes = topics.iter().map(|topic| message::route(topic, &self.settings));
        let (mut exchanges, mut queues) = (BTreeSet::new(), BTreeSet::new());
        for (exchange, key) in routes {
            exchanges.insert(exchange);
            // With the tag in the key, a queue of this name is for messages without a tag alone.
            if exchange.is_empty() && !self.settings.tag_in_key {
                queues.insert(key);
            }
        }
        if exchanges.is_empty() {
            exchanges.insert(self.settings.exchange.as_ref().map_or("", |exchange| exchange.as_str()));
        }
        let mut findings = Vec::new();
        let work = async {
            for exchange in exchanges {
                findings.extend(rights::ask(&connection, exchange).await);
            }
            for queue in queues {
                findings.extend(rights::ask_queue(&connection, queue).await);
            }
        };
        // The warnings found so far are returned.
        let _ = within(&*self.clock, end, work).await;
        findings
    }

    /// Whether we could publish, and whether the exchange is there if there is only one.
    async fn ask(&self, connection: &BrokerConnection) -> Result<(), SinkError> {
        let channel = connection.channel().await?;
        if let Some(exchange) =
            self.settings.exchange.clone().filter(|exchange| !exchange.as_str().is_empty())
        {
            let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
            let reply = channel
                .exchange_declare(exchange, ExchangeKind::Direct, passive, FieldTable::default())
                .await;
            reply.map_err(|error| failure::query_failed(&error))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Sink for RabbitmqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let times = Times {
            check: self.after(self.settings.timeout * 3 / 4),
            end: self.after(self.settings.timeout),
        };
        let mut messages = Vec::with_capacity(batch.len());
        for (position, delivery) in batch.iter().enumerate() {
            match OutgoingMessage::of(delivery, &self.settings) {
                Ok(message) => messages.push((position, Arc::new(message))),
                Err(fault) => outcomes.report(position, Err(SinkError::never(&fault))),
            }
        }
        if messages.is_empty() {
            return;
        }
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(failure) => {
                return messages
                    .iter()
                    .for_each(|(position, _)| outcomes.report(*position, Err(failure.clone())));
            }
        };
        let call = PublishCall::new(connection.clone(), &*self.clock, outcomes);
        if call.run(messages, times).await == Broker::Silent {
            // The next call uses another connection.
            self.link.drop_connection(&connection);
        }
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        message::destination(message, &self.settings)
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        message::check(message, &self.settings)
    }

    /// Connects, if need be, and opens a channel. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        let end = self.after(self.settings.timeout);
        let connection = self.connection().await?;
        let reply = within(&*self.clock, end, self.ask(&connection)).await;
        let Some(reply) = reply else {
            self.link.drop_connection(&connection);
            return Err(SinkError::unreachable("no answer in time"));
        };
        reply
    }
}
