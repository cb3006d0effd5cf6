//! The suite of the [`Sink`] port, and a sink that writes down what it is given.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use duly_core::{Delivery, Message, MessageId, Sink, SinkError, SinkErrorKind, SinkName, Timestamp};

/// The far end of a sink under test.
#[async_trait]
pub trait Target: Send + Sync {
    /// The sink that delivers there.
    fn sink(&self) -> Arc<dyn Sink>;

    /// A message that the target takes.
    fn good(&self, id: MessageId) -> Message {
        Message::new(id, "target".parse().unwrap(), "topic".parse().unwrap(), Timestamp::from_millis(1))
    }

    /// A message that the target refuses for what it is.
    fn bad(&self, id: MessageId) -> Message;

    /// The ids that the target has, once for each copy.
    async fn arrived(&self) -> Vec<MessageId>;
}

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn deliveries(messages: impl IntoIterator<Item = Message>) -> Vec<Delivery> {
    messages.into_iter().map(|message| Delivery { message, attempt: 1 }).collect()
}

/// The answer has as many entries as the batch, and each is about its own message.
pub async fn one_outcome_per_message_in_order(target: &dyn Target) {
    let sink = target.sink();
    assert_eq!(sink.deliver(&[]).await.len(), 0);
    for size in [1, 2, 100] {
        let messages = (0..size).map(|n| {
            let id = id(&format!("batch{size}-{n}"));
            if n % 3 == 1 { target.bad(id) } else { target.good(id) }
        });
        let outcomes = sink.deliver(&deliveries(messages)).await;
        let refused: Vec<_> = outcomes.iter().map(Result::is_err).collect();
        assert_eq!(refused, (0..size).map(|n| n % 3 == 1).collect::<Vec<_>>());
    }
}

/// `Ok` only after the target's positive acknowledgement: it is there now.
pub async fn ok_means_the_target_has_it(target: &dyn Target) {
    let batch = deliveries(["a", "b", "c"].map(|text| target.good(id(text))));
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let arrived = target.arrived().await;
    for delivery in &batch {
        assert!(arrived.contains(&delivery.message.id), "{} did not arrive", delivery.message.id);
    }
    target.sink().probe().await.unwrap();
    assert_eq!(target.arrived().await.len(), arrived.len(), "a probe delivers nothing");
}

/// One bad message fails alone, and is named as refused.
pub async fn a_refusal_hurts_no_neighbour(target: &dyn Target) {
    let batch = deliveries([target.good(id("before")), target.bad(id("bad")), target.good(id("after"))]);
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
    let arrived = target.arrived().await;
    assert!(
        arrived.contains(&id("before")) && arrived.contains(&id("after")) && !arrived.contains(&id("bad"))
    );
}

/// Every case of the [`Sink`] suite as a test of its own, in a module named after the sink.
#[macro_export]
macro_rules! sink_suite {
    ($name:ident, $target:expr) => {
        mod $name {
            $crate::port_tests!(sink, $target;
                one_outcome_per_message_in_order
                ok_means_the_target_has_it
                a_refusal_hurts_no_neighbour
            );
        }
    };
}

/// A sink that writes down what it is given, and refuses the topic `refused`.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    arrived: Arc<Mutex<Vec<Delivery>>>,
}

impl Recorder {
    /// What arrived, in its order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.arrived.lock().unwrap().clone()
    }

    /// The ids that arrived, each once.
    pub fn ids(&self) -> BTreeSet<MessageId> {
        self.deliveries().into_iter().map(|delivery| delivery.message.id).collect()
    }
}

#[async_trait]
impl Sink for Recorder {
    async fn deliver(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let mut arrived = self.arrived.lock().unwrap();
        let mut take = |delivery: &Delivery| {
            if delivery.message.topic.as_str() == "refused" {
                return Err(SinkError::new(SinkErrorKind::Refused, "this topic is refused"));
            }
            arrived.push(delivery.clone());
            Ok(arrived.len().to_string())
        };
        batch.iter().map(&mut take).collect()
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[async_trait]
impl Target for Recorder {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    fn bad(&self, id: MessageId) -> Message {
        let sink: SinkName = "target".parse().unwrap();
        Message::new(id, sink, "refused".parse().unwrap(), Timestamp::from_millis(1))
    }

    async fn arrived(&self) -> Vec<MessageId> {
        self.deliveries().into_iter().map(|delivery| delivery.message.id).collect()
    }
}

#[cfg(test)]
mod tests {
    crate::sink_suite!(recorder, crate::sink::Recorder::default());

    #[test]
    fn every_line_of_the_contract_has_its_case() {
        let here = include_str!("sink.rs");
        let lines = crate::contract_lines(include_str!("../../core/src/sink.rs"), "#[async_trait]");
        assert_eq!(lines.len(), 3);
        for line in lines {
            assert!(here.contains(&format!("pub async fn {line}(")), "{line} has no case");
        }
    }
}
