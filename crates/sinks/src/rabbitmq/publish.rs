//! From messages to what is sent, and from confirmations to outcomes.

use std::collections::BTreeMap;

use bytes::Bytes;
use duly_core::{Delivery, SinkError, SinkErrorKind};
use futures_util::{StreamExt, stream};
use lapin::{
    BasicProperties, Channel, Confirmation, Error,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{
    Outcome,
    failure::{blocked, no_answer, no_connection, refused, unconfirmed},
    link::Wire,
    settings::Settings,
};

/// Messages of one call and exchange that are under way at the same time.
const PIPELINE: usize = 1_024;
/// The broker writes it down.
const PERSISTENT: u8 = 2;
/// What the broker's confirmation says: no more than that.
const CONFIRMED: &str = "confirmed";

const OURS: &str = "duly-";
const CONTENT_TYPE: &str = "content-type";
/// Headers by which RabbitMQ is told what to do: to wait, and to send to others besides.
const ORDERS: [&str; 3] = ["x-delay", "CC", "BCC"];

/// A message, ready to be sent.
pub(super) struct Parcel {
    pub(super) exchange: ShortString,
    key: ShortString,
    properties: BasicProperties,
    body: Bytes,
}

/// How far one of a call has come.
enum Stage {
    /// Not begun.
    Waiting,
    /// On its way.
    Sent,
    Done(Outcome),
}

impl Parcel {
    /// The message in the form of AMQP; or why it has none.
    pub(super) fn of(delivery: &Delivery, settings: &Settings, size_max: usize) -> Result<Self, SinkError> {
        let message = &delivery.message;
        let body = message.body.to_bytes();
        if body.len() > size_max {
            return Err(refused(format!("{} bytes, and the broker takes {size_max}", body.len())));
        }
        let topic = message.topic.as_str();
        let (exchange, key) = match &settings.exchange {
            Some(exchange) => (exchange.clone(), topic),
            None => {
                let (exchange, key) = topic.split_once('/').unwrap_or(("", topic));
                (short("the exchange", exchange)?, key)
            }
        };
        let tag = message.tag.as_ref().map(|tag| tag.as_str());
        let key = match tag.filter(|_| settings.tag_in_key) {
            Some(tag) => short("the routing key", &format!("{key}.{tag}"))?,
            None => short("the routing key", key)?,
        };
        let properties = fields(delivery)?
            .with_message_id(short("the id", message.id.as_str())?)
            .with_content_type(message.body.kind().mime().into())
            .with_delivery_mode(PERSISTENT)
            .with_timestamp(message.due.as_millis() / 1_000)
            .with_headers(headers(delivery)?);
        Ok(Self { exchange, key, properties, body })
    }

    /// What the broker names it by when it returns it.
    fn id(&self) -> &str {
        self.properties.message_id().as_ref().map(ShortString::as_str).unwrap_or_default()
    }
}

/// Properties that have a place of their own in AMQP are there, too: consumers of other senders look for them there.
fn fields(delivery: &Delivery) -> Result<BasicProperties, SinkError> {
    let given =
        |name: &str| delivery.message.properties.get(name).map(|value| short(name, value)).transpose();
    let mut fields = BasicProperties::default();
    if let Some(value) = given("correlation-id")? {
        fields = fields.with_correlation_id(value);
    }
    if let Some(value) = given("reply-to")? {
        fields = fields.with_reply_to(value);
    }
    if let Some(value) = given("type")? {
        fields = fields.with_type(value);
    }
    if let Some(value) = given("app-id")? {
        fields = fields.with_app_id(value);
    }
    if let Some(value) = given("content-encoding")? {
        fields = fields.with_content_encoding(value);
    }
    Ok(fields)
}

fn headers(delivery: &Delivery) -> Result<FieldTable, SinkError> {
    let message = &delivery.message;
    let mut all = BTreeMap::new();
    for (name, value) in message.properties.iter() {
        let is_ours = name.starts_with(OURS) || name.eq_ignore_ascii_case(CONTENT_TYPE);
        if is_ours || ORDERS.contains(&name) {
            let detail = format!("the header {name:?} is not for properties: give this one another name");
            return Err(refused(detail));
        }
        all.insert(short("the name of a property", name)?, text(value));
    }
    all.insert("duly-id".into(), text(message.id.as_str()));
    all.insert("duly-due".into(), text(&message.due.as_millis().to_string()));
    all.insert("duly-attempt".into(), text(&delivery.attempt.to_string()));
    if let Some(tag) = &message.tag {
        all.insert("duly-tag".into(), text(tag.as_str()));
    }
    if let Some(key) = &message.key {
        all.insert("duly-key".into(), text(key.as_str()));
    }
    Ok(all.into())
}

fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}

/// Names have 255 bytes in AMQP.
fn short(what: &str, words: &str) -> Result<ShortString, SinkError> {
    let fault = || refused(format!("{what} has {} bytes, and AMQP has room for 255", words.len()));
    ShortString::try_new(words).map_err(|_| fault())
}

/// What became of the messages of one exchange, and whether the channel may be used again.
pub(super) struct Answers {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) is_clean: bool,
    /// What ended the channel, if something did.
    pub(super) end: Option<Error>,
}

/// The messages of one exchange on their way, on a channel that is theirs alone.
pub(super) struct Batch<'a> {
    parcels: &'a [&'a Parcel],
    stages: Vec<Stage>,
    /// Words of the broker, by the ids of the messages that it had no queue for.
    returned: BTreeMap<String, String>,
    why: Option<SinkError>,
    end: Option<Error>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(parcels: &'a [&'a Parcel]) -> Self {
        let stages = parcels.iter().map(|_| Stage::Waiting).collect();
        Self { parcels, stages, returned: BTreeMap::new(), why: None, end: None }
    }

    /// Sends all of them and gathers the confirmations as they come.
    pub(super) async fn publish(&mut self, wire: &Wire, channel: &Channel) {
        let parcels = self.parcels;
        let asking = (0..parcels.len()).map(|place| {
            let parcel = parcels[place];
            async move { (place, ask(channel, parcel).await) }
        });
        let mut answers = stream::iter(asking).buffer_unordered(PIPELINE);
        let blocks = wire.blocked();
        tokio::pin!(blocks);
        let (mut begun, mut done) = (0, 0);
        while done < parcels.len() {
            // They begin in order.
            while begun < parcels.len().min(done + PIPELINE) {
                self.stages[begun] = Stage::Sent;
                begun += 1;
            }
            tokio::select! {
                biased;
                Some((place, answer)) = answers.next() => {
                    done += 1;
                    self.take(place, answer);
                }
                reason = &mut blocks => {
                    self.why = Some(blocked(&reason));
                    return;
                }
            }
        }
    }

    fn take(&mut self, place: usize, answer: Result<Confirmation, Error>) {
        let outcome = match answer {
            Ok(Confirmation::Ack(returned)) => {
                self.note(returned);
                Ok(CONFIRMED.to_owned())
            }
            Ok(Confirmation::Nack(returned)) => {
                self.note(returned);
                let detail =
                    "the broker did not take it: a queue that is full and rejects, or trouble of its own";
                Err(SinkError::new(SinkErrorKind::Throttled, detail))
            }
            Ok(Confirmation::NotRequested) => Err(no_answer("the channel does not confirm")),
            Err(error) => {
                let outcome = Err(unconfirmed(&error));
                self.end.get_or_insert(error);
                outcome
            }
        };
        self.stages[place] = Stage::Done(outcome);
    }

    /// The client hands what was returned to whichever message is confirmed next: only its id tells whose it is.
    fn note(&mut self, returned: Option<lapin::message::BasicReturnMessage>) {
        let Some(returned) = returned else { return };
        let id = returned.delivery.properties.message_id().as_ref().map(ToString::to_string);
        let words = format!("{} {}: no queue is bound for it", returned.reply_code, returned.reply_text);
        self.returned.insert(id.unwrap_or_default(), words);
    }

    /// What became of each, as far as it is known by now.
    pub(super) fn answers(self) -> Answers {
        let is_clean = self.stages.iter().all(|stage| matches!(stage, Stage::Done(Ok(_))));
        let why = self.why.unwrap_or_else(|| no_answer("no confirmation in time"));
        let each = self.stages.into_iter().zip(self.parcels).map(|(stage, parcel)| {
            match (self.returned.get(parcel.id()), stage) {
                (Some(words), _) => Err(refused(words.clone())),
                (None, Stage::Done(outcome)) => outcome,
                (None, Stage::Sent) => Err(why.clone()),
                (None, Stage::Waiting) => Err(no_connection("the connection was lost before this was sent")),
            }
        });
        Answers { outcomes: each.collect(), is_clean, end: self.end }
    }
}

async fn ask(channel: &Channel, parcel: &Parcel) -> Result<Confirmation, Error> {
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let (exchange, key) = (parcel.exchange.clone(), parcel.key.clone());
    channel.basic_publish(exchange, key, mandatory, &parcel.body, parcel.properties.clone()).await?.await
}
