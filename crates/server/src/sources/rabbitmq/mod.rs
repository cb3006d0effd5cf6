//! A queue of RabbitMQ whose messages ask for a delay (`x-delay`): taken, accepted by Duly, and only then acknowledged.

mod reading;
mod refusal;

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

use crate::{config::SourceSetup, http::Topics};
use reading::Id;
use refusal::Refusal;

/// So many messages are accepted together at most.
const TOGETHER_MAX: usize = 500;
/// A broker that does not let us begin within this is tried again later.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// The wait before a broker or a store that failed is tried again, at first and at most.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Looks whether messages could be taken, and takes none. Gives how many wait in the queue, or why none can come.
pub(super) async fn probe(setup: &SourceSetup, clock: &dyn Clock) -> Result<u32, String> {
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
        Ok(queue.message_count())
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
pub(super) struct Into {
    pub(super) duly: Duly,
    /// The topics of the built-in queue, which are limited.
    pub(super) topics: Arc<Topics>,
}

/// One source.
pub(super) struct Bridge {
    name: String,
    setup: SourceSetup,
    /// So many messages are accepted together: what is past the limit of a batch would be refused.
    together: usize,
    duly: Duly,
    topics: Arc<Topics>,
    clock: Arc<dyn Clock>,
}

/// Why a source takes nothing more.
enum End {
    Stopped,
    Lost(String),
}

impl From<lapin::Error> for End {
    fn from(error: lapin::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Bridge {
    pub(super) fn new(
        name: &str,
        setup: &SourceSetup,
        limits: &Limits,
        into: Into,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let together = TOGETHER_MAX.min(limits.batch_max);
        let Into { duly, topics } = into;
        Self { name: name.into(), setup: setup.clone(), together, duly, topics, clock }
    }

    /// Takes messages until it is told to stop; a connection that breaks is made again.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let (mut wait, mut was_there) = (WAIT_MIN, true);
        loop {
            let mut worked = false;
            let End::Lost(why) = self.consume(&mut stopping, &mut worked).await else { return };
            if worked {
                (wait, was_there) = (WAIT_MIN, true);
            }
            // Said once, and not at each of the tries that follow.
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

    /// `worked` is set once messages can come.
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
        // What was not acknowledged goes back to the queue.
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

    /// Hands them to Duly, and acknowledges what is safe there. None stays unacknowledged: what Duly cannot take is settled
    /// otherwise.
    async fn accept(
        &self,
        batch: &[Delivery],
        refusal: &Refusal<'_>,
        connection: &Connection,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), End> {
        let read = |delivery, id| (delivery, id, reading::message(delivery, &self.setup, id));
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
                    // Somebody else's message has this id. It is another message, so it gets an id of its own.
                    Err(Error::IdConflict(_)) => again.push(read(delivery, id.next())),
                    // It may have been accepted: with the same id, a repeat is the same message.
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
        // Last, as it may take long: what Duly took is acknowledged by then.
        for (delivery, error) in refused {
            self.refuse(delivery, &error, refusal, connection, stopping).await?;
        }
        Ok(())
    }

    /// Whether there is room for its topic, if it is one of the built-in queue; if not, why.
    async fn admit(&self, delivery: &Delivery) -> Result<(), String> {
        if self.setup.sink.as_str() != SinkName::QUEUE {
            return Ok(());
        }
        self.topics.admit_source(&self.duly, &reading::topic(delivery, &self.setup)).await
    }

    /// Keeps a message elsewhere. Until that works, it is tried again on the same connection and nothing else is taken: each end
    /// of a connection counts as a return, and a quorum queue discards what returned 20 times.
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
            // Said once, and not at each of the tries that follow.
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

    /// Whether it is to stop.
    async fn pause(&self, wait: Duration, stopping: &mut watch::Receiver<bool>) -> bool {
        let end = self.clock.now().mono().saturating_add(wait);
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => true,
            () = self.clock.sleep_until(end) => false,
        }
    }
}
