//! One small message, and what a sink makes of it.

use std::sync::Arc;

use duly_core::{Body, Delivery, Sink, SinkError, SinkErrorKind, StoredMessage, Timestamp};

/// A message with the body `body`, due in the last second of 2025.
pub fn message(topic: &str, id: &str) -> StoredMessage {
    let (id, sink) = (id.parse().unwrap(), "events".parse().unwrap());
    let due = Timestamp::from_millis(1_767_225_599_000);
    StoredMessage { body: Body::text("body"), ..StoredMessage::new(id, sink, topic.parse().unwrap(), due) }
}

/// The first attempt of that message.
pub fn to(topic: &str, id: &str) -> Delivery {
    Delivery::new(message(topic, id), 1)
}

/// Delivers that message alone.
pub async fn one(sink: &Arc<dyn Sink>, topic: &str, id: &str) -> Result<String, SinkError> {
    sink.deliver(&[to(topic, id)]).await.remove(0)
}

/// Delivers that message alone, which fails.
///
/// # Panics
/// If it is delivered.
pub async fn failure(sink: &Arc<dyn Sink>, topic: &str, id: &str) -> SinkErrorKind {
    one(sink, topic, id).await.unwrap_err().kind
}
