//! Messages that Duly cannot take. They neither come back nor stand in the way of others.

use std::time::Duration;

use duly::{Clock, Error};
use lapin::{
    BasicProperties, Channel, Connection, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};

use super::{End, within};

/// The header that says why.
const REASON: &str = "duly-refused";
/// The dead-letter exchange takes a message within this, or the connection is made anew and the message comes again.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// Where they go.
pub(super) enum Refusal {
    /// Rejected: the queue's own dead-letter exchange has them, if there is one.
    Reject,
    /// Published to this exchange.
    Publish { channel: Channel, exchange: String },
}

/// What became of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Published,
    /// Why not published, if that was wanted.
    Rejected(Option<String>),
}

impl Refusal {
    /// The exchange must be there.
    pub(super) async fn open(connection: &Connection, exchange: Option<&str>) -> lapin::Result<Self> {
        let Some(exchange) = exchange else { return Ok(Self::Reject) };
        let channel = connection.create_channel().await?;
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        if !exchange.is_empty() {
            let declared = channel.exchange_declare(
                exchange.into(),
                ExchangeKind::Direct,
                passive,
                FieldTable::default(),
            );
            declared.await?;
        }
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self::Publish { channel, exchange: exchange.to_owned() })
    }

    /// Ends a message's stay in its queue.
    pub(super) async fn settle(
        &self,
        delivery: &Delivery,
        error: &Error,
        clock: &dyn Clock,
    ) -> Result<Kept, End> {
        let why = match self {
            Self::Reject => None,
            Self::Publish { channel, exchange } => {
                let reason = error.to_string();
                let published = publish(channel, exchange, delivery, &reason);
                match within(clock, TAKEN_WITHIN, published).await {
                    Ok(Published::Kept) => {
                        delivery.ack(BasicAckOptions::default()).await?;
                        return Ok(Kept::Published);
                    }
                    Ok(Published::NoQueue) => Some(format!("no queue is bound to {exchange:?} for it")),
                    // An outage, or a channel that ended: the message stays in its queue.
                    Err(why) => return Err(End::Lost(format!("dead_letter_exchange {exchange:?}: {why}"))),
                }
            }
        };
        delivery.reject(BasicRejectOptions { requeue: false }).await?;
        Ok(Kept::Rejected(why))
    }
}

/// What became of a message that was published to the dead-letter exchange.
enum Published {
    Kept,
    NoQueue,
}

/// Returns when a queue behind the exchange has it, or none wants it.
async fn publish(
    channel: &Channel,
    exchange: &str,
    delivery: &Delivery,
    why: &str,
) -> Result<Published, String> {
    let mut headers = delivery.properties.headers().clone().unwrap_or_default();
    headers.insert(REASON.into(), AMQPValue::LongString(why.into()));
    let properties = copied(&delivery.properties).with_headers(headers);
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let key = delivery.routing_key.clone();
    let sent = channel.basic_publish(exchange.into(), key, mandatory, &delivery.data, properties);
    let confirm = async { sent.await?.await };
    match confirm.await {
        Ok(confirmation) if confirmation.is_ack() => {
            Ok(if confirmation.take_message().is_none() { Published::Kept } else { Published::NoQueue })
        }
        Ok(_) => Err(format!("{exchange:?} did not take it")),
        Err(error) => Err(error.to_string()),
    }
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
