//! Negative acknowledgement.

use std::time::Duration;

use duly_core::{
    ErrorScope, Lane, LeaseLoss, Outcome, Receipt, Record, State, Topic,
    schedule::{AttemptResult, DeliveryTerms, Random, settlement_of},
    store::{Settle, Settled, Settlement},
};

use crate::{
    Duly, Error,
    queue_arguments::parse,
    store_monitor::{CallKind, StoreCall},
    trace::Spans,
};

/// Options of a nack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nack {
    /// The exact wait; by default that of the retry policy.
    pub delay: Option<Duration>,
    /// The error, kept with the attempt. With it the attempt counts as failed, and the first wait is longer.
    pub error: Option<String>,
    /// Whether the message becomes a dead letter now.
    pub dead: bool,
}

impl Nack {
    /// Retry when the retry policy of the message says so.
    #[must_use]
    pub fn again() -> Self {
        Self::default()
    }

    /// Failed: retry when the retry policy of the message says so.
    #[must_use]
    pub fn failed(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// Make it a dead letter now.
    #[must_use]
    pub fn dead(error: impl Into<String>) -> Self {
        Self { dead: true, ..Self::failed(error) }
    }

    /// Retry after exactly this long.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    fn end(&self) -> AttemptResult {
        let (outcome, otherwise) = match (self.dead, &self.error) {
            (true, _) => (Outcome::Refused, "the receiver gave it up"),
            (false, Some(_)) => (Outcome::Failed, ""),
            (false, None) => (Outcome::Again, "the receiver said: again"),
        };
        let detail = self.error.clone().unwrap_or_else(|| otherwise.into());
        AttemptResult::Failed { outcome, detail, retry_after: self.delay, scope: ErrorScope::Target }
    }
}

impl From<Option<Duration>> for Nack {
    fn from(delay: Option<Duration>) -> Self {
        Self { delay, ..Self::default() }
    }
}

impl Duly {
    /// Rejects messages: they are retried as `how` and their retry policies say. It counts as an attempt; after the
    /// last one they are dead letters. One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be done; call it again: what was done already answers
    /// [`Settled::Lost`].
    pub async fn nack<R: AsRef<str>>(
        &self,
        receipts: &[R],
        how: impl Into<Nack> + Send,
    ) -> Result<Vec<Settled>, Error> {
        let store = self.store()?;
        let (receipts, how) = (parse(receipts)?, how.into());
        let parts = &self.inner.parts;
        self.inner.receipt_cache.take(&receipts);
        let ids: Vec<_> = receipts.iter().map(|receipt| receipt.id.clone()).collect();
        let records = store.get_without_bodies(&ids).await?;
        let now = parts.clock.now();
        let settings = self.queue_settings();
        let mut settles = Vec::new();
        for (receipt, record) in receipts.iter().zip(&records) {
            let Some(record) = record else { continue };
            let random = Random::new(receipt.token).draw();
            let settlement =
                settlement_of(now.wall(), &settings, &terms(record), how.end(), now.wall(), random);
            settles.push(Settle { receipt: receipt.clone(), settlement });
        }
        let settlements: Vec<_> = settles.iter().map(|settle| settle.settlement.clone()).collect();
        let call = parts.events.monitor.begin(CallKind::Settle, now.mono());
        let messages = records.iter().flatten().map(|record| &record.message);
        let span = parts.spans.settle(settles.len(), messages);
        let results = Spans::run_settle(span, parts.store.settle(now, settles)).await;
        drop(call);
        let mut results = parts.events.observe(StoreCall::Settle, now, results)?.into_iter().zip(settlements);
        let answer = |record: Option<Record>| {
            let (Some(record), Some((settled, settlement))) =
                (record.as_ref(), record.as_ref().and_then(|_| results.next()))
            else {
                return Settled::Lost;
            };
            if settled == Settled::Done {
                // After the settle: a receiver that claims too early finds nothing.
                if let Settlement::Retry { at, .. } = &settlement {
                    parts.hints.push(record.message.lane(), *at);
                }
                let counters = parts.events.counters.lane(&record.message.lane());
                parts.events.settled(
                    &counters,
                    &record.message,
                    record.attempts + 1,
                    Duration::ZERO,
                    &settlement,
                );
            }
            settled
        };
        Ok(records.into_iter().map(answer).collect())
    }

    /// The queue of each receipt, from the cache or else from the store. `None`: no message of that id is in flight, or
    /// it is of no queue.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn queues_of<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Option<Topic>>, Error> {
        let store = self.store()?;
        let receipts = parse(receipts)?;
        let mut queues = self.inner.receipt_cache.topics(&receipts);
        let unknown =
            |(receipt, queue): (&Receipt, &Option<Topic>)| queue.is_none().then(|| receipt.id.clone());
        let ids: Vec<_> = receipts.iter().zip(&queues).filter_map(unknown).collect();
        if ids.is_empty() {
            return Ok(queues);
        }
        let mut records = store.get_without_bodies(&ids).await?.into_iter();
        for queue in queues.iter_mut().filter(|queue| queue.is_none()) {
            let in_flight = records.next().flatten().filter(|record| record.state == State::InFlight);
            let lane = in_flight.map(|record| record.message.lane());
            *queue = lane.and_then(|lane| if let Lane::Queue(topic) = lane { Some(topic) } else { None });
        }
        Ok(queues)
    }
}

fn terms(record: &Record) -> DeliveryTerms {
    DeliveryTerms {
        message: 0,
        destination: 0,
        due: record.message.due,
        attempt: record.attempts + 1,
        lost: LeaseLoss::None,
        lost_at: None,
        max_lateness: record.message.max_lateness,
        retry: record.message.retry.clone(),
        bytes: record.message.bytes(),
    }
}
