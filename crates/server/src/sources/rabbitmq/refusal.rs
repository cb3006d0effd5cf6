//! Messages that Duly cannot take. They neither come back nor stand in the way of others.

use std::time::Duration;

use duly::{Clock, Error};
use lapin::{
    Channel, Connection, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};

use super::within;

/// The header that says why.
const REASON: &str = "duly-refused";
/// The dead-letter exchange takes a message within this, or it is rejected.
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
    ) -> lapin::Result<Kept> {
        let why = match self {
            Self::Reject => None,
            Self::Publish { channel, exchange } => {
                let reason = error.to_string();
                let published = publish(channel, exchange, delivery, &reason);
                match within(clock, TAKEN_WITHIN, published).await {
                    Ok(()) => {
                        delivery.ack(BasicAckOptions::default()).await?;
                        return Ok(Kept::Published);
                    }
                    Err(why) => Some(why),
                }
            }
        };
        delivery.reject(BasicRejectOptions { requeue: false }).await?;
        Ok(Kept::Rejected(why))
    }
}

/// Returns when a queue behind the exchange has it.
async fn publish(channel: &Channel, exchange: &str, delivery: &Delivery, why: &str) -> Result<(), String> {
    let mut headers = delivery.properties.headers().clone().unwrap_or_default();
    headers.insert(REASON.into(), AMQPValue::LongString(why.into()));
    let properties = delivery.properties.clone().with_headers(headers);
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let key = delivery.routing_key.clone();
    let sent = channel.basic_publish(exchange.into(), key, mandatory, &delivery.data, properties);
    let confirm = async { sent.await?.await };
    match confirm.await {
        Ok(confirmation) if confirmation.is_ack() => match confirmation.take_message() {
            None => Ok(()),
            Some(_) => Err(format!("no queue is bound to {exchange:?} for it")),
        },
        Ok(_) => Err(format!("{exchange:?} did not take it")),
        Err(error) => Err(error.to_string()),
    }
}
