#![doc = include_str!("docs.md")]

mod client;
mod config;
mod context;
mod failure;
mod partition;
mod record;
mod remarks;
mod settings;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, StoredMessage};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc;

use client::{Client, Connection};
pub use config::{KafkaConfig, Mechanism};
use context::RecordReport;
use failure::is_of_batch;
use partition::Partitions;
use settings::{Settings, alone_time};

use crate::within::within;

/// Sends to Kafka.
pub struct KafkaSink {
    client: Client,
    /// For records that must be alone in their batch. Used only when a batch was rejected.
    alone: Client,
    partitions: Partitions,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

/// One call.
struct ProduceCall<'a> {
    outcomes: &'a Outcomes<'a>,
    /// Deadline of metadata requests.
    connect_until: Monotonic,
    /// Deadline to send a record again alone: nothing is sent after its call has ended.
    alone_until: Monotonic,
    end: Monotonic,
}

/// A message and its place in the call.
type Indexed<'a> = (usize, &'a Delivery);

impl KafkaSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let (client, alone) = (Client::new(settings.client), Client::new(settings.alone));
        Self { client, alone, partitions: Partitions::default(), timeout: settings.timeout, clock }
    }

    /// Queues these messages in the library, and reports each outcome when it is known.
    async fn send(&self, connection: &Connection, messages: Vec<Indexed<'_>>, call: &ProduceCall<'_>) {
        let (sender, mut reports) = mpsc::unbounded_channel();
        let mut pending = BTreeMap::new();
        for (index, delivery) in messages {
            match connection.hand_over(index, delivery, &sender) {
                Ok(()) => drop(pending.insert(index, delivery)),
                Err(error) => call.outcomes.report(index, Err(error)),
            }
        }
        let (mut alone, mut sent_alone) = (BTreeSet::new(), FuturesUnordered::new());
        let over = self.clock.sleep_until(call.end);
        tokio::pin!(over);
        while !pending.is_empty() {
            let (index, error) = tokio::select! {
                biased;
                Some(RecordReport { index, result }) = reports.recv() => {
                    let Some(delivery) = pending.get(&index).copied() else { continue };
                    match result {
                        Ok(receipt) => {
                            pending.remove(&index);
                            call.outcomes.report(index, Ok(receipt));
                            continue;
                        }
                        // Nothing of the batch was written, and another record may be the reason. Reports of others do not wait.
                        Err((error, _)) if is_of_batch(&error) && alone.insert(index) => {
                            let sending = self.send_alone((index, delivery), &sender, call);
                            sent_alone.push(async move { (index, sending.await) });
                            continue;
                        }
                        Err((error, persistence)) => {
                            (index, connection.classify(delivery.message.topic.as_str(), &error, persistence))
                        }
                    }
                }
                Some((index, sent)) = sent_alone.next() => match sent {
                    Ok(()) => continue,
                    Err(error) => (index, error),
                },
                () = &mut over => break,
            };
            pending.remove(&index);
            call.outcomes.report(index, Err(error));
        }
        for (index, delivery) in pending {
            let error = SinkError::unknown("no answer in time").at_destination();
            connection.record_failure(delivery.message.topic.as_str(), &error);
            call.outcomes.report(index, Err(error));
        }
    }

    /// Sends a message again, in a batch of its own.
    async fn send_alone(
        &self,
        (index, delivery): Indexed<'_>,
        reports: &mpsc::UnboundedSender<RecordReport>,
        call: &ProduceCall<'_>,
    ) -> Result<(), SinkError> {
        let connecting = self.alone.connection(delivery.message.topic.as_str(), alone_time(self.timeout));
        let connected = within(&*self.clock, call.alone_until, connecting).await;
        let late = "its batch was turned away, and no time was left to send it alone";
        // The brokers are up: one of them has just rejected the batch.
        let connected = connected.unwrap_or_else(|| Err(SinkError::unreachable(late)));
        let connection = connected.map_err(SinkError::at_destination)?;
        connection.hand_over(index, delivery, reports)
    }

    /// Requests the metadata of unverified topics, each before its messages are sent.
    async fn send_unverified(
        &self,
        connection: &Connection,
        messages: Vec<Indexed<'_>>,
        call: &ProduceCall<'_>,
    ) {
        let mut by_topic: BTreeMap<&str, Vec<Indexed<'_>>> = BTreeMap::new();
        for (index, delivery) in messages {
            by_topic.entry(delivery.message.topic.as_str()).or_default().push((index, delivery));
        }
        let mut known = Vec::new();
        for (topic, messages) in by_topic {
            let reply = self.client.ask_topic(connection, topic, self.timeout / 2);
            match within(&*self.clock, call.connect_until, reply).await {
                Some(Ok(count)) => {
                    self.partitions.learn(topic, count);
                    known.extend(messages);
                }
                Some(Err(error)) => report_all(messages, &error, call),
                None => {
                    report_all(messages, &SinkError::unreachable("no answer in time").at_destination(), call)
                }
            }
        }
        self.send(connection, known, call).await;
    }
}

fn report_all(messages: Vec<Indexed<'_>>, error: &SinkError, call: &ProduceCall<'_>) {
    for (index, _) in messages {
        call.outcomes.report(index, Err(error.clone()));
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        record::check(message)
    }

    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let mut messages = Vec::with_capacity(batch.len());
        for (index, delivery) in batch.iter().enumerate() {
            match record::check(&delivery.message) {
                Err(fault) => outcomes.report(index, Err(SinkError::never(&fault))),
                Ok(()) => messages.push((index, delivery)),
            }
        }
        let Some((_, first)) = messages.first() else { return };
        let now = self.clock.now().mono();
        let after = |span| now.saturating_add(span);
        let connect_until = after(self.timeout / 2);
        let alone_until = after(self.timeout - alone_time(self.timeout));
        let call = ProduceCall { outcomes, connect_until, alone_until, end: after(self.timeout) };
        let connected = self.client.connection(first.message.topic.as_str(), self.timeout / 2);
        let connection = match within(&*self.clock, connect_until, connected).await {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return report_all(messages, &error, &call),
            None => return report_all(messages, &SinkError::unreachable("no connection in time"), &call),
        };
        let (unverified, ready) = messages
            .into_iter()
            .partition(|(_, delivery)| connection.is_unverified(delivery.message.topic.as_str()));
        tokio::join!(
            self.send(&connection, ready, &call),
            self.send_unverified(&connection, unverified, &call)
        );
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        self.partitions.destination(message)
    }

    /// Asks the brokers what topics they have. Nothing is written.
    async fn probe(&self) -> Result<(), SinkError> {
        let end = self.clock.now().mono().saturating_add(self.timeout);
        let reply = within(&*self.clock, end, self.client.probe(self.timeout / 2)).await;
        reply.unwrap_or_else(|| Err(SinkError::unreachable("no answer in time")))
    }
}
