#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod link;
mod record;
mod settings;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};
use rdkafka::{error::KafkaError, producer::DeliveryFuture};

pub use config::{KafkaConfig, Mechanism};
use failure::{no_answer, no_connection};
use link::{Link, Wire};
use settings::Settings;

/// Sends to Kafka.
pub struct KafkaSink {
    link: Link,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

type Outcome = Result<String, SinkError>;
/// What became of a record, in the library's words.
type Fate = Result<String, KafkaError>;

impl KafkaSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { link: Link::new(settings.client), timeout: settings.timeout, clock }
    }

    async fn within<T>(&self, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// Sends these, which a topic may take for all that we know.
    async fn send(&self, batch: &[&Delivery]) -> Vec<Outcome> {
        let all = |error: SinkError| vec![Err(error); batch.len()];
        let now = self.clock.now().mono();
        let (half, end) = (now.saturating_add(self.timeout / 2), now.saturating_add(self.timeout));
        let topic = batch.first().map(|delivery| delivery.message.topic.as_str());
        let wire = match self.within(half, self.link.wire(topic, self.timeout / 2)).await {
            Some(Ok(wire)) => wire,
            Some(Err(failure)) => return all(failure),
            None => return all(no_connection("no connection in time")),
        };
        let topics = batch.iter().map(|delivery| delivery.message.topic.as_str()).collect();
        let _ = self.within(half, self.link.look_for(&wire, topics, self.timeout / 2)).await;
        let mut outcomes = self.send_by(&wire, batch, end).await;
        // A partition's share was too large as one; nothing of it was written.
        let parted: Vec<usize> =
            (0..batch.len()).filter(|n| outcomes[*n].is_err() && batch.len() > 1).collect();
        for place in parted {
            if let Err(Failure { too_large: true, .. }) = &outcomes[place] {
                outcomes[place] = self.send_by(&wire, &[batch[place]], end).await.remove(0);
            }
        }
        for (outcome, delivery) in outcomes.iter().zip(batch) {
            if let Err(Failure { no_topic: true, .. }) = outcome {
                wire.misses(delivery.message.topic.as_str());
            }
        }
        let outcomes: Vec<Outcome> =
            outcomes.into_iter().map(|outcome| outcome.map_err(|failure| failure.error)).collect();
        if outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(failure::is_the_ways)) {
            wire.doubt();
        }
        outcomes
    }

    /// Hands all of them to the library, and waits for what becomes of each.
    async fn send_by(
        &self,
        wire: &Wire,
        batch: &[&Delivery],
        end: Monotonic,
    ) -> Vec<Result<String, Failure>> {
        let handed: Vec<Result<DeliveryFuture, KafkaError>> = batch
            .iter()
            .map(|delivery| wire.producer.send_result(record::record(delivery)).map_err(|(error, _)| error))
            .collect();
        let mut fates = Vec::with_capacity(handed.len());
        for fate in handed {
            fates.push(match fate {
                Ok(fate) => self.within(end, settled(fate)).await,
                Err(error) => Some(Err(error)),
            });
        }
        fates.into_iter().map(told).collect()
    }
}

struct Failure {
    error: SinkError,
    too_large: bool,
    no_topic: bool,
}

fn told(fate: Option<Fate>) -> Result<String, Failure> {
    let Some(fate) = fate else {
        return Err(Failure { error: no_answer("no answer in time"), too_large: false, no_topic: false });
    };
    fate.map_err(|error| Failure {
        too_large: failure::is_too_large(&error),
        no_topic: failure::is_no_topic(&error),
        error: failure::sorted(&error),
    })
}

async fn settled(fate: DeliveryFuture) -> Fate {
    match fate.await {
        Ok(Ok(delivery)) => Ok(format!("{}:{}", delivery.partition, delivery.offset)),
        Ok(Err((error, _))) => Err(error),
        // The producer is gone, and what it knew with it.
        Err(_) => Err(KafkaError::Canceled),
    }
}

impl KafkaSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let checked: Vec<_> = batch.iter().map(record::check).collect();
        let fit: Vec<_> =
            batch.iter().zip(&checked).filter(|(_, fault)| fault.is_none()).map(|(each, _)| each).collect();
        let mut sent = if fit.is_empty() { Vec::new() } else { self.send(&fit).await }.into_iter();
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "it was left unanswered"));
        checked
            .into_iter()
            .map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err))
            .collect()
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Asks the brokers what topics they have. Nothing is written.
    async fn probe(&self) -> Result<(), SinkError> {
        let end = self.clock.now().mono().saturating_add(self.timeout);
        let asked = self.within(end, self.link.probe(self.timeout / 2)).await;
        asked.unwrap_or_else(|| Err(no_connection("no answer in time")))
    }
}
