//! A queue of RabbitMQ whose messages ask for a delay (`x-delay`): taken, accepted by Duly, and only then acknowledged.

mod reading;

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly, Error, Limits, Message};
use futures_util::{FutureExt, StreamExt};
use lapin::{
    Connection, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::sync::watch;

use crate::config::SourceSetup;
use reading::Id;

/// So many messages are accepted together at most.
const TOGETHER_MAX: usize = 500;
/// The wait before a broker or a store that failed is tried again, at first and at most.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Looks whether messages could be taken, and takes none. Gives how many wait in the queue, or why none can come.
pub(super) async fn probe(setup: &SourceSetup) -> Result<u32, String> {
    let connection =
        duly_sinks::rabbitmq::connect(&setup.broker()).await.map_err(|failure| failure.detail)?;
    let asked = async {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = connection.create_channel().await?;
        channel.queue_declare(setup.queue.as_str().into(), passive, FieldTable::default()).await
    };
    let queue = asked.await.map_err(|error| format!("queue {:?}: {error}", setup.queue));
    let _ = connection.close(200, "looked".into()).now_or_never();
    Ok(queue?.message_count())
}

/// One source.
pub(super) struct Bridge {
    name: String,
    setup: SourceSetup,
    /// So many messages are accepted together: what is past the limit of a batch would be refused.
    together: usize,
    duly: Duly,
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
        duly: Duly,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let together = TOGETHER_MAX.min(limits.batch_max);
        Self { name: name.into(), setup: setup.clone(), together, duly, clock }
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
                tracing::error!(
                    source = self.name,
                    "takes no messages from RabbitMQ now, and tries again: {why}"
                );
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
            connected = duly_sinks::rabbitmq::connect(&broker) => match connected {
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
        let mut consumer = self.consumer(connection).await?;
        *worked = true;
        tracing::info!(source = self.name, queue = self.setup.queue, "takes messages from RabbitMQ");
        let mut held = 0;
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
            held += self.accept(&batch, stopping).await?;
            if held >= usize::from(self.setup.prefetch) {
                let detail =
                    "all that it may hold are messages that Duly refuses; purge or mend them at the broker";
                return Err(End::Lost(detail.into()));
            }
        }
    }

    async fn consumer(&self, connection: &Connection) -> Result<Consumer, End> {
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.setup.prefetch, BasicQosOptions::default()).await?;
        let (queue, tag) = (self.setup.queue.as_str().into(), format!("duly-{}", self.name));
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        Ok(channel.basic_consume(queue, tag.as_str().into(), options, none).await?)
    }

    /// Hands them to Duly, and acknowledges what is safe there. Gives how many Duly refused: they stay unacknowledged.
    async fn accept(&self, batch: &[Delivery], stopping: &mut watch::Receiver<bool>) -> Result<usize, End> {
        let read = |delivery, id| (delivery, reading::message(delivery, &self.setup, id));
        let mut left: Vec<(&Delivery, Message)> = batch.iter().map(|each| read(each, Id::Theirs)).collect();
        let (mut refused, mut wait) = (0, WAIT_MIN);
        while !left.is_empty() {
            let answers = self.duly.send_batch(left.iter().map(|(_, message)| message.clone())).await;
            let mut again = Vec::new();
            let mut why = None;
            for ((delivery, message), answer) in left.into_iter().zip(answers) {
                match answer {
                    Ok(_) => drop(delivery.ack(BasicAckOptions::default()).await?),
                    Err(Error::Closed | Error::Stopped(_)) => return Err(End::Stopped),
                    // Somebody else's message has this id. It is another message, so it gets an id of its own.
                    Err(Error::IdConflict(_)) => again.push(read(delivery, Id::Made)),
                    Err(Error::Store(error)) => {
                        why = Some(error.to_string());
                        again.push((delivery, message));
                    }
                    Err(error) => {
                        refused += 1;
                        self.refuse(delivery, &error);
                    }
                }
            }
            if let Some(why) = why {
                tracing::warn!(
                    source = self.name,
                    "messages wait at RabbitMQ, as Duly cannot take them now: {why}"
                );
                if self.pause(wait, stopping).await {
                    return Err(End::Stopped);
                }
                wait = (wait * 2).min(WAIT_MAX);
            }
            left = again;
        }
        Ok(refused)
    }

    fn refuse(&self, delivery: &Delivery, error: &Error) {
        tracing::error!(
            source = self.name,
            routing_key = delivery.routing_key.as_str(),
            "Duly refuses a message, which stays unacknowledged at RabbitMQ: {error}"
        );
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
