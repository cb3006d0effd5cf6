//! A sink that takes some topics only.

use std::sync::Arc;

use async_trait::async_trait;
use duly_core::{Delivery, Invalid, Sink, SinkError, SinkErrorKind, Topic, TopicPatterns};

/// Refuses what its patterns do not allow, when it is sent and once more before it is delivered: what is stored may have been accepted
/// under other settings, or by another way than [`send`](crate::Duly::send).
pub(crate) struct TopicGuard {
    sink: Arc<dyn Sink>,
    topics: TopicPatterns,
}

impl TopicGuard {
    /// The sink itself, if it takes every topic.
    pub(crate) fn around(sink: Arc<dyn Sink>, topics: &TopicPatterns) -> Arc<dyn Sink> {
        if topics.allows_all() { sink } else { Arc::new(Self { sink, topics: topics.clone() }) }
    }

    fn fault(&self, topic: &Topic) -> Option<String> {
        let is_allowed = self.topics.allows(topic.as_str());
        (!is_allowed).then(|| format!("this sink does not take the topic {:?}", topic.as_str()))
    }
}

#[async_trait]
impl Sink for TopicGuard {
    async fn deliver(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let faults: Vec<_> = batch.iter().map(|delivery| self.fault(&delivery.message.topic)).collect();
        if faults.iter().all(Option::is_none) {
            return self.sink.deliver(batch).await;
        }
        let taken: Vec<Delivery> = batch
            .iter()
            .zip(&faults)
            .filter(|(_, fault)| fault.is_none())
            .map(|(one, _)| one.clone())
            .collect();
        let sent = if taken.is_empty() { Vec::new() } else { self.sink.deliver(&taken).await };
        let mut sent = sent.into_iter();
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "the sink left it unanswered"));
        let outcome = |fault: Option<String>| match fault {
            Some(detail) => Err(SinkError::new(SinkErrorKind::Refused, detail)),
            None => sent.next().unwrap_or_else(missing),
        };
        faults.into_iter().map(outcome).collect()
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.sink.probe().await
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), Invalid> {
        match self.fault(topic) {
            Some(detail) => Err(Invalid::new("topic_not_allowed", "topic", detail)),
            None => self.sink.check_topic(topic),
        }
    }

    async fn settled(&self, delivered: &[Delivery]) {
        self.sink.settled(delivered).await;
    }
}
