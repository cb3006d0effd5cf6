//! Whether the broker discards what comes back to a queue too often.

use lapin::{
    Connection,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};

/// The type of queue is unknown.
const NO_TYPE: &str = "?";

/// Whether it is a quorum queue without a dead-letter exchange among its arguments: there, what came back too often is discarded.
///
/// AMQP has no question for that. But a declaration that differs from a queue is refused, and the refusal names the first
/// difference; a dead-letter exchange comes before the type. Nothing is made, even if the queue is gone by now: there is no queue of the type
/// that is asked for. Policies are not seen. A user who may not declare the queue is told nothing.
pub(super) async fn discards_returns(connection: &Connection, queue: &str) -> bool {
    let Ok(channel) = connection.create_channel().await else { return false };
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(NO_TYPE.into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), durable, arguments).await;
    declared.is_err_and(|error| is_quorum(&error.to_string()))
}

fn is_quorum(words: &str) -> bool {
    let difference = words.rsplit_once("but current is");
    difference.is_some_and(|(asked, is)| asked.contains("'x-queue-type'") && is.contains("'quorum'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_type_of_the_queue_counts() {
        let refused = |arg: &str, name: &str, is: &str| {
            let what = format!("inequivalent arg '{arg}' for queue '{name}' in vhost '/'");
            format!("PRECONDITION_FAILED - {what}: received '?' but current is {is}")
        };
        assert!(is_quorum(&refused("x-queue-type", "orders", "'quorum'")));
        assert!(!is_quorum(&refused("x-queue-type", "quorum", "none")));
        let exchange = "the value 'quorum' of type 'longstr'";
        assert!(!is_quorum(&refused("x-dead-letter-exchange", "orders", exchange)));
    }
}
