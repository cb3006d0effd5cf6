//! Consumes a RabbitMQ queue of delayed messages (`x-delay`). A message is acknowledged once Duly has accepted it.

mod delivery_limit;
mod message;
mod refusal;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly, Error, Limits, Message, SinkName};
use futures_util::{FutureExt, StreamExt};
use lapin::{
    Connection, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::sync::watch;

use super::Probed;
use crate::{config::SourceSetup, http::Topics};
use message::Id;
use refusal::Refusal;

/// Max messages of one batch.
const TOGETHER_MAX: usize = 500;
/// Timeout of connecting to the broker.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// Backoff after a failure of broker or store: first and longest.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Checks whether messages can be consumed, and consumes none. An error says why none can come.
pub(super) async fn probe(setup: &SourceSetup, clock: &dyn Clock) -> Result<Probed, String> {
    let connection = duly_sinks::rabbitmq::connect(&setup.broker(), clock, BEGIN_WITHIN).await;
    let connection = connection.map_err(|failure| failure.detail)?;
    let asked = async {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = connection.create_channel().await.map_err(|error| error.to_string())?;
        let queue = channel.queue_declare(setup.queue.as_str().into(), passive, FieldTable::default()).await;
        let queue = queue.map_err(|error| format!("queue {:?}: {error}", setup.queue))?;
        let exchange = setup.dead_letter_exchange.as_deref();
        let refusal = Refusal::open(&connection, exchange, &setup.queue).await;
        refusal.map_err(|error| format!("dead_letter_exchange: {error}"))?;
        let discards_returns = delivery_limit::discards_returns(&connection, &setup.queue).await;
        Ok(Probed { waiting: queue.message_count(), discards_returns })
    };
    let asked = within(clock, BEGIN_WITHIN, asked).await;
    let _ = connection.close(200, "looked".into()).now_or_never();
    asked
}

/// The same within a time.
async fn within<T>(
    clock: &dyn Clock,
    span: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let end = clock.now().mono().saturating_add(span);
    tokio::select! {
        biased;
        done = work => done,
        () = clock.sleep_until(end) => Err(format!("no answer within {span:?}")),
    }
}

/// Where messages are taken to.
pub(super) struct Destination {
    pub(super) duly: Duly,
    /// The topics of the built-in queue, which are limited.
    pub(super) topics: Arc<Topics>,
}

/// One source.
pub(super) struct RabbitmqSource {
    name: String,
    setup: SourceSetup,
    /// Messages accepted by one call: the batch limit, past which they would be refused.
    together: usize,
    duly: Duly,
    topics: Arc<Topics>,
    clock: Arc<dyn Clock>,
}

/// Why a source stopped consuming.
enum End {
    Stopped,
    Lost(String),
}

impl From<lapin::Error> for End {
    fn from(error: lapin::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl RabbitmqSource {
    pub(super) fn new(
        name: &str,
        setup: &SourceSetup,
        limits: &Limits,
        destination: Destination,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let together = TOGETHER_MAX.min(limits.batch_max);
        let Destination { duly, topics } = destination;
        Self { name: name.into(), setup: setup.clone(), together, duly, topics, clock }
    }

    /// Consumes messages until the stop signal; reconnects after a disconnect.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let (mut wait, mut was_there) = (WAIT_MIN, true);
        loop {
            let mut worked = false;
            let End::Lost(why) = self.consume(&mut stopping, &mut worked).await else { return };
            if worked {
                (wait, was_there) = (WAIT_MIN, true);
            }
            // Log once, not at each retry.
            if was_there {
                tracing::error!(source = self.name, why, "source unreachable");
            }
            was_there = false;
            if self.pause(wait, &mut stopping).await {
                return;
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// `worked` is set once the consumer is registered.
    async fn consume(&self, stopping: &mut watch::Receiver<bool>, worked: &mut bool) -> End {
        let broker = self.setup.broker();
        let connection = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return End::Stopped,
            connected = duly_sinks::rabbitmq::connect(&broker, &*self.clock, BEGIN_WITHIN) => match connected {
                Ok(connection) => connection,
                Err(failure) => return End::Lost(failure.detail),
            },
        };
        let end = match self.take(&connection, stopping, worked).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        // Unacknowledged messages are requeued.
        let _ = connection.close(200, "stopped".into()).now_or_never();
        end
    }

    async fn take(
        &self,
        connection: &Connection,
        stopping: &mut watch::Receiver<bool>,
        worked: &mut bool,
    ) -> Result<std::convert::Infallible, End> {
        let begun = within(&*self.clock, BEGIN_WITHIN, async {
            let exchange = self.setup.dead_letter_exchange.as_deref();
            let refusal = Refusal::open(connection, exchange, &self.setup.queue).await;
            let refusal = refusal.map_err(|error| format!("dead_letter_exchange: {error}"))?;
            Ok((refusal, self.consumer(connection).await.map_err(|error| error.to_string())?))
        });
        let (refusal, mut consumer) = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return Err(End::Stopped),
            begun = begun => begun.map_err(End::Lost)?,
        };
        *worked = true;
        tracing::info!(source = self.name, queue = self.setup.queue, "source connected");
        loop {
            let first = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => return Err(End::Stopped),
                next = consumer.next() => next,
            };
            let mut batch = match first {
                Some(delivery) => vec![delivery?],
                None => return Err(End::Lost("the broker ended it: is the queue still there?".into())),
            };
            while batch.len() < self.together
                && let Some(Some(Ok(delivery))) = consumer.next().now_or_never()
            {
                batch.push(delivery);
            }
            self.accept(&batch, &refusal, connection, stopping).await?;
        }
    }

    async fn consumer(&self, connection: &Connection) -> lapin::Result<Consumer> {
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.setup.prefetch, BasicQosOptions::default()).await?;
        let (queue, tag) = (self.setup.queue.as_str().into(), format!("duly-{}", self.name));
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        channel.basic_consume(queue, tag.as_str().into(), options, none).await
    }

    /// Sends a batch to Duly and acknowledges what was accepted. Refused messages are parked elsewhere, so none stays
    /// unacknowledged.
    async fn accept(
        &self,
        batch: &[Delivery],
        refusal: &Refusal<'_>,
        connection: &Connection,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), End> {
        let read = |delivery, id| (delivery, id, message::message(delivery, &self.setup, id));
        let mut wait = WAIT_MIN;
        let mut refused: Vec<(&Delivery, String)> = Vec::new();
        let mut left: Vec<(&Delivery, Id, Message)> = Vec::with_capacity(batch.len());
        for delivery in batch {
            match self.admit(delivery).await {
                Ok(()) => left.push(read(delivery, Id::Theirs)),
                Err(why) => refused.push((delivery, why)),
            }
        }
        while !left.is_empty() {
            let answers = self.duly.send_batch(left.iter().map(|(_, _, message)| message.clone())).await;
            let mut again = Vec::new();
            let mut why = None;
            for ((delivery, id, message), answer) in left.into_iter().zip(answers) {
                match answer {
                    Ok(_) => drop(delivery.ack(BasicAckOptions::default()).await?),
                    Err(Error::Closed | Error::Stopped(_)) => return Err(End::Stopped),
                    // Another message has this id: use a different id.
                    Err(Error::IdConflict(_)) => again.push(read(delivery, id.next())),
                    // It may have been accepted: a retry with the same id is a duplicate, not a second message.
                    Err(Error::Unanswered { id: given, error }) => {
                        why = Some(error.to_string());
                        again.push((delivery, id, message.id(given)));
                    }
                    Err(Error::Store(error)) => {
                        why = Some(error.to_string());
                        again.push((delivery, id, message));
                    }
                    Err(error) => refused.push((delivery, error.to_string())),
                }
            }
            if let Some(why) = why {
                tracing::warn!(source = self.name, why, "source paused, store unavailable");
                if self.pause(wait, stopping).await {
                    return Err(End::Stopped);
                }
                wait = (wait * 2).min(WAIT_MAX);
            }
            left = again;
        }
        // Last, because it may take long: accepted messages are acknowledged by then.
        for (delivery, error) in refused {
            self.refuse(delivery, &error, refusal, connection, stopping).await?;
        }
        Ok(())
    }

    /// Checks the limit of topics, if the message goes to the built-in queue.
    async fn admit(&self, delivery: &Delivery) -> Result<(), String> {
        if self.setup.sink.as_str() != SinkName::QUEUE {
            return Ok(());
        }
        self.topics.admit_source(&self.duly, &message::topic(delivery, &self.setup)).await
    }

    /// Parks a refused message. Retries on the same connection until that works, and consumes nothing meanwhile: each disconnect
    /// counts as a return, and a quorum queue discards a message after 20 returns.
    async fn refuse(
        &self,
        delivery: &Delivery,
        error: &str,
        refusal: &Refusal<'_>,
        connection: &Connection,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), End> {
        let id = delivery.properties.message_id().as_ref().map(|id| id.as_str()).unwrap_or_default();
        let (routing_key, bytes) = (delivery.routing_key.as_str(), delivery.data.len());
        let (mut wait, mut is_first) = (WAIT_MIN, true);
        loop {
            let failure = match refusal.keep(delivery, error, &*self.clock).await {
                Ok(kept) => {
                    // A channel that is gone ends the connection: kept again and again, it would be there many times.
                    delivery.ack(BasicAckOptions::default()).await?;
                    tracing::error!(
                        source = self.name,
                        id,
                        routing_key,
                        bytes,
                        error,
                        ?kept,
                        "message refused"
                    );
                    return Ok(());
                }
                Err(failure) if !connection.status().connected() => return Err(End::Lost(failure)),
                Err(failure) => failure,
            };
            // Log once, not at each retry.
            if is_first {
                tracing::error!(
                    source = self.name,
                    id,
                    routing_key,
                    bytes,
                    error,
                    failure,
                    "refused message not kept; source paused"
                );
            }
            is_first = false;
            if self.pause(wait, stopping).await {
                return Err(End::Stopped);
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Whether the stop signal was given.
    async fn pause(&self, wait: Duration, stopping: &mut watch::Receiver<bool>) -> bool {
        let end = self.clock.now().mono().saturating_add(wait);
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => true,
            () = self.clock.sleep_until(end) => false,
        }
    }
}
