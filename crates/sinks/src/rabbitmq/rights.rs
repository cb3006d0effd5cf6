//! Checks of `doctor`: whether exchanges and queues exist and the user may publish. Delivers nothing.

use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};

use super::{
    connection::BrokerConnection,
    failure::{Cause, is_not_found},
};
use crate::Finding;

/// A message in a transaction that is rolled back is checked by the broker and reaches no queue.
pub(super) async fn ask(connection: &BrokerConnection, exchange: &str) -> Option<Finding> {
    let channel = connection.plain_channel().await.ok()?;
    let mut errors = connection.channel_errors();
    let reply = async {
        channel.tx_select().await?;
        let options = BasicPublishOptions::default();
        let sent =
            channel.basic_publish(exchange.into(), "duly".into(), options, b"", BasicProperties::default());
        sent.await?;
        channel.tx_rollback().await
    };
    let mut error = reply.await.err()?;
    if Cause::of(&error) == Cause::Other {
        // The channel may only know that it is closed.
        errors.changed().await.ok()?;
        error = errors.borrow_and_update().clone()?;
    }
    let (detail, remedy) = match (Cause::of(&error), exchange) {
        (Cause::Exchange(_), exchange) if is_not_found(&error) => (
            format!("there is no exchange {exchange:?}: messages to it are denied"),
            "make it, with the queues that are bound to it",
        ),
        (Cause::Exchange(_), "") => (
            format!(
                "this user may not publish to queues by their names, so topics without an exchange are denied: {error}"
            ),
            "give the user the write permission on amq.default, or name an exchange in every topic",
        ),
        (Cause::Exchange(_), exchange) => (
            format!("this user may not publish to the exchange {exchange:?}: {error}"),
            "give the user the write permission on it",
        ),
        // A routing key of no meaning may be forbidden where those of messages are not.
        _ => return None,
    };
    Some(Finding { detail, remedy: remedy.into() })
}

/// Whether a queue is there that messages go to by its name.
pub(super) async fn ask_queue(connection: &BrokerConnection, queue: &str) -> Option<Finding> {
    let channel = connection.plain_channel().await.ok()?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let error = channel.queue_declare(queue.into(), passive, FieldTable::default()).await.err()?;
    is_not_found(&error).then(|| Finding {
        detail: format!("there is no queue {queue:?}: messages to it are denied"),
        remedy: "make it, or name an exchange in the topic".into(),
    })
}
