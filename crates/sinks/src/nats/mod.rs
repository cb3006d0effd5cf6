#![doc = include_str!("docs.md")]

mod ask;
mod config;
mod core;
mod failure;
mod link;
mod publish;
mod settings;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use duly_core::{
    Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind, StoredMessage,
};

use self::core::Core;
pub use config::{NatsConfig, NatsMode};
use link::{Connection, Link};
use publish::{OutgoingMessage, Pause, Publication};
use settings::Settings;

use crate::{Finding, within::within};

/// The last part of a call's time, used to check whether the server answers if a message got no answer.
const MARGIN: u32 = 8;
const SILENT: &str = "no acknowledgement in time: the server answers, and the stream does not";

/// Publishes to NATS.
pub struct NatsSink {
    link: Link,
    core: Core,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

type Outcome = Result<String, SinkError>;

impl NatsSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { link: Link::new(), core: Core::new(clock.clone()), settings, clock }
    }

    /// Deadlines of a call: to have a connection, and to have all answers.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        let after = |span| now.saturating_add(span);
        (after(self.settings.timeout / 2), after(self.settings.timeout))
    }

    async fn connection(&self, until: Monotonic) -> Result<Connection, SinkError> {
        let connection = within(&*self.clock, until, self.link.connection(&self.settings)).await;
        connection.unwrap_or_else(|| Err(SinkError::unreachable("no connection in time")))
    }

    /// Publishes these messages to streams.
    async fn publish(&self, messages: Vec<(usize, OutgoingMessage)>, outcomes: &Outcomes<'_>) {
        let (begin_until, end) = self.ends();
        let connection = match self.connection(begin_until).await {
            Ok(connection) => connection,
            Err(failure) => {
                messages.iter().for_each(|(index, _)| outcomes.report(*index, Err(failure.clone())));
                return;
            }
        };
        // The rest of the time is used to tell a silent stream from a silent server.
        let margin = self.settings.timeout / MARGIN;
        let now = self.clock.now().mono();
        let answers_until = now.saturating_add(end.since(now).saturating_sub(margin));
        let pause = || -> Pause {
            let (clock, until) = (self.clock.clone(), self.clock.now().mono().saturating_add(margin));
            Box::pin(async move { clock.sleep_until(until).await })
        };
        let mut publication = Publication::new(&messages, outcomes, &connection);
        let in_time = within(&*self.clock, answers_until, publication.send(messages, pause)).await;
        let silent = SinkError::unknown("no acknowledgement in time, or the connection was lost");
        if in_time.is_some() || !publication.has_unanswered() {
            return publication.give_up(&silent);
        }
        match within(&*self.clock, end, ask::has_read(&connection)).await {
            Some(Ok(())) => publication.give_up(&SinkError::unknown(SILENT).at_destination()),
            _ => {
                // Report first, as another call may hold the lock to connect. The next call uses another connection.
                publication.give_up(&silent);
                self.link.drop_connection(&connection).await;
            }
        }
    }

    /// Warnings about settings that are valid and unusual.
    async fn inspect(&self, again: Duration, topics: &[&str]) -> Vec<Finding> {
        if self.settings.mode == NatsMode::Core {
            return vec![Finding {
                detail:
                    "core NATS is at-most-once: whoever does not listen at that moment never gets the message"
                        .into(),
                remedy: "leave mode out for JetStream, which stores and acknowledges".into(),
            }];
        }
        let (begin_until, end) = self.ends();
        let mut findings = Vec::new();
        if let Ok(connection) = self.connection(begin_until).await {
            // The warnings found so far are returned.
            let _ = within(&*self.clock, end, ask::inspect(&connection, again, topics, &mut findings)).await;
        }
        findings
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let mut messages = Vec::with_capacity(batch.len());
        for (index, delivery) in batch.iter().enumerate() {
            match OutgoingMessage::of(delivery) {
                Ok(message) => messages.push((index, message)),
                Err(fault) => outcomes.report(index, Err(SinkError::never(&fault))),
            }
        }
        match self.settings.mode {
            _ if messages.is_empty() => {}
            NatsMode::Jetstream => self.publish(messages, outcomes).await,
            NatsMode::Core => self.core.send(&self.settings, &messages, outcomes).await,
        }
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        publish::check(message)
    }

    /// Connects, if need be, and asks whether there is a JetStream. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        if self.settings.mode == NatsMode::Core {
            return self.core.probe(&self.settings).await;
        }
        let (begin_until, end) = self.ends();
        let connection = self.connection(begin_until).await?;
        let reply = within(&*self.clock, end, ask::is_there(&connection)).await;
        let reply = reply.unwrap_or_else(|| Err(SinkError::unreachable("no answer in time")));
        if reply.as_ref().is_err_and(|error| error.kind == SinkErrorKind::Unreachable) {
            self.link.drop_connection(&connection).await;
        }
        reply
    }
}
