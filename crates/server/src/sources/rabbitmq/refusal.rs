//! Messages that Duly cannot take. They are kept where somebody finds them, with the reason, and stand in no other's way.

use std::time::Duration;

use duly::Clock;
use lapin::{
    BasicProperties, Channel, Connection, ExchangeKind,
    message::Delivery,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::sync::Mutex;

use super::within;

/// The header that says why.
const REASON: &str = "duly-refused";
/// The header that keeps what `CC` said.
const ROUTES: &str = "duly-cc";
/// The queue for refused messages is called like the queue they came from, with this behind.
const SUFFIX: &str = ".refused";
/// The longest name of a queue in AMQP, in bytes.
const NAME_MAX: usize = 255;
/// A refused message is kept elsewhere within this, or it is tried again.
const KEPT_WITHIN: Duration = Duration::from_secs(10);

/// Where they go: to the dead-letter exchange that is configured, or else into a queue that is made for them.
///
/// They are never rejected: whether their queue has a dead-letter exchange of its own cannot be asked by AMQP, and without one
/// RabbitMQ would discard them.
pub(super) struct Refusal<'a> {
    connection: &'a Connection,
    exchange: Option<&'a str>,
    /// For those that no exchange takes.
    queue: String,
    open: Mutex<Open>,
}

/// Channels for publishing. A failure may have closed them.
#[derive(Default)]
struct Open {
    exchange: Option<Channel>,
    queue: Option<Channel>,
}

/// Where one is now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Exchange(String),
    Queue(String),
}

impl<'a> Refusal<'a> {
    /// A configured exchange must be there.
    pub(super) async fn open(
        connection: &'a Connection,
        exchange: Option<&'a str>,
        queue: &str,
    ) -> Result<Self, String> {
        let own = format!("{queue}{SUFFIX}");
        let refusal = Self { connection, exchange, queue: own, open: Mutex::default() };
        match exchange {
            Some(exchange) => {
                let channel = to_exchange(connection, exchange).await.map_err(|error| error.to_string())?;
                refusal.open.lock().await.exchange = Some(channel);
            }
            None if refusal.queue.len() > NAME_MAX => {
                return Err(format!("set it: {SUFFIX:?} after the name of this queue makes it too long"));
            }
            None => {}
        }
        Ok(refusal)
    }

    /// Keeps a message elsewhere. It is still in its own queue, and unacknowledged.
    pub(super) async fn keep(
        &self,
        delivery: &Delivery,
        why: &str,
        clock: &dyn Clock,
    ) -> Result<Kept, String> {
        let kept = within(clock, KEPT_WITHIN, self.publish(delivery, why)).await;
        if kept.is_err() {
            // Whatever is wrong with the channels, the next try has others.
            *self.open.lock().await = Open::default();
        }
        kept
    }

    async fn publish(&self, delivery: &Delivery, why: &str) -> Result<Kept, String> {
        let mut open = self.open.lock().await;
        if let Some(exchange) = self.exchange {
            let place = |error: &dyn std::fmt::Display| format!("dead_letter_exchange {exchange:?}: {error}");
            let channel = match open.exchange.take() {
                Some(channel) => channel,
                None => to_exchange(self.connection, exchange).await.map_err(|error| place(&error))?,
            };
            let channel = open.exchange.insert(channel);
            let key = delivery.routing_key.as_str();
            let published = publish(channel, exchange, key, delivery, why).await;
            match published.map_err(|error| place(&error))? {
                Published::Kept => return Ok(Kept::Exchange(exchange.to_owned())),
                Published::NoQueue => {}
            }
        }
        let place = |error: &dyn std::fmt::Display| format!("queue {:?}: {error}", self.queue);
        if self.queue.len() > NAME_MAX {
            return Err(place(&"the name is too long; bind a queue to dead_letter_exchange"));
        }
        let channel = match open.queue.take() {
            Some(channel) => channel,
            None => to_queue(self.connection, &self.queue).await.map_err(|error| place(&error))?,
        };
        let channel = open.queue.insert(channel);
        let published = publish(channel, "", &self.queue, delivery, why).await;
        match published.map_err(|error| place(&error))? {
            Published::Kept => Ok(Kept::Queue(self.queue.clone())),
            Published::NoQueue => Err(place(&"it was deleted")),
        }
    }
}

/// A channel to an exchange that is there.
async fn to_exchange(connection: &Connection, exchange: &str) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    if !exchange.is_empty() {
        let kind = ExchangeKind::Direct;
        channel.exchange_declare(exchange.into(), kind, passive, FieldTable::default()).await?;
    }
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// A channel to this queue, which is made if it is not there: a quorum queue, so that it outlives the node it is made on.
async fn to_queue(connection: &Connection, queue: &str) -> lapin::Result<Channel> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let mut channel = connection.create_channel().await?;
    if channel.queue_declare(queue.into(), passive, FieldTable::default()).await.is_err() {
        channel = connection.create_channel().await?;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        channel.queue_declare(queue.into(), durable, arguments).await?;
    }
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// The outcome of a published message.
enum Published {
    Kept,
    NoQueue,
}

/// Returns when a queue has it, or none wants it.
async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    delivery: &Delivery,
    why: &str,
) -> Result<Published, String> {
    let properties = copied(&delivery.properties).with_headers(headers(&delivery.properties, why));
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish(exchange.into(), key.into(), mandatory, &delivery.data, properties);
    let confirm = async { sent.await?.await };
    match confirm.await {
        Ok(confirmation) if confirmation.is_ack() => {
            Ok(if confirmation.take_message().is_none() { Published::Kept } else { Published::NoQueue })
        }
        Ok(_) => Err("it did not take the message".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// The headers of a dead letter, and why it is one. RabbitMQ also routes by `CC` and `BCC`: with them it would go back to where it
/// came from, again and again.
fn headers(from: &BasicProperties, why: &str) -> FieldTable {
    let mut to = FieldTable::default();
    for (name, value) in from.headers().iter().flat_map(FieldTable::inner) {
        let name = match name.as_str() {
            "CC" => ROUTES.into(),
            "BCC" => continue,
            _ => name.clone(),
        };
        to.insert(name, value.clone());
    }
    to.insert(REASON.into(), AMQPValue::LongString(why.into()));
    to
}

/// The properties of a dead letter: all but `user-id`, over which RabbitMQ closes the channel if it is not ours, and
/// `expiration`, as a dead letter stays.
fn copied(from: &BasicProperties) -> BasicProperties {
    let mut to = BasicProperties::default();
    if let Some(value) = from.content_type().clone() {
        to = to.with_content_type(value);
    }
    if let Some(value) = from.content_encoding().clone() {
        to = to.with_content_encoding(value);
    }
    if let Some(value) = *from.delivery_mode() {
        to = to.with_delivery_mode(value);
    }
    if let Some(value) = *from.priority() {
        to = to.with_priority(value);
    }
    if let Some(value) = from.correlation_id().clone() {
        to = to.with_correlation_id(value);
    }
    if let Some(value) = from.reply_to().clone() {
        to = to.with_reply_to(value);
    }
    if let Some(value) = from.message_id().clone() {
        to = to.with_message_id(value);
    }
    if let Some(value) = *from.timestamp() {
        to = to.with_timestamp(value);
    }
    if let Some(value) = from.kind().clone() {
        to = to.with_type(value);
    }
    if let Some(value) = from.app_id().clone() {
        to = to.with_app_id(value);
    }
    to
}

#[cfg(test)]
mod tests {
    use lapin::ConnectionProperties;
    use testkit::servers::rabbitmq::unconfirming_broker;

    use super::*;

    #[tokio::test]
    async fn a_queue_whose_name_leaves_no_room_for_that_of_refused_ones_is_a_fault_with_advice() {
        let url = format!("amqp://127.0.0.1:{}", unconfirming_broker().await);
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        assert!(Refusal::open(&connection, None, &"n".repeat(247)).await.is_ok());
        let name = "n".repeat(248);
        let fault = Refusal::open(&connection, None, &name).await.err().unwrap();
        assert!(fault.contains("too long"), "{fault}");
        // With an exchange that has no queue for a message, the name counts when it is refused.
        let refusal = Refusal {
            connection: &connection,
            exchange: None,
            queue: format!("{name}{SUFFIX}"),
            open: Mutex::default(),
        };
        let refused = Delivery::mock(1, "".into(), name.as_str().into(), false, Vec::new());
        let fault = refusal.publish(&refused, "too large").await.unwrap_err();
        assert!(fault.contains("too long"), "{fault}");
    }
}
