//! A sink that accepts some topics only.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use duly_core::{
    Delivery, ErrorCode, Invalid, Outcomes, Sink, SinkError, StoredMessage, Topic, TopicPatterns,
};

/// Refuses topics that its patterns do not match, when a message is sent and again before it is delivered: a stored
/// message may have been accepted under other settings, or by another way than [`send`](crate::Duly::send).
pub(crate) struct TopicGuard {
    sink: Arc<dyn Sink>,
    topics: TopicPatterns,
}

impl TopicGuard {
    /// Wraps a sink, unless it accepts every topic.
    pub(crate) fn wrap(sink: Arc<dyn Sink>, topics: &TopicPatterns) -> Arc<dyn Sink> {
        if topics.allows_all() { sink } else { Arc::new(Self { sink, topics: topics.clone() }) }
    }

    fn fault(&self, topic: &Topic) -> Option<String> {
        let is_allowed = self.topics.allows(topic.as_str());
        (!is_allowed).then(|| format!("this sink does not take the topic {:?}", topic.as_str()))
    }
}

#[async_trait]
impl Sink for TopicGuard {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let (mut allowed, mut indices) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (index, delivery) in batch.iter().enumerate() {
            match self.fault(&delivery.message.topic) {
                Some(detail) => outcomes.report(index, Err(SinkError::refused(detail))),
                None => {
                    allowed.push(delivery.clone());
                    indices.push(index);
                }
            }
        }
        if allowed.len() == batch.len() {
            return self.sink.deliver_each(batch, outcomes).await;
        }
        let report = |index: usize, result| {
            if let Some(index) = indices.get(index) {
                outcomes.report(*index, result);
            }
        };
        if !allowed.is_empty() {
            self.sink.deliver_each(&allowed, &Outcomes::new(&report)).await;
        }
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        self.sink.destination(message)
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.sink.probe().await
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        match self.fault(&message.topic) {
            Some(detail) => Err(Invalid::new(ErrorCode::TopicNotAllowed, "topic", detail)),
            None => self.sink.check(message),
        }
    }

    async fn settled(&self, delivered: &[Delivery]) {
        self.sink.settled(delivered).await;
    }
}
