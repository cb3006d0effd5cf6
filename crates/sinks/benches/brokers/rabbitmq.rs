//! RabbitMQ: a quorum queue.

use std::collections::VecDeque;

use async_trait::async_trait;
use duly_core::Delivery;
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use testkit::servers::rabbitmq;

use crate::broker::{Bare, Broker, Keep, switched_by};

const QUEUE: &str = "orders";

pub(crate) struct Rabbitmq(rabbitmq::Rabbitmq);

impl Rabbitmq {
    pub(crate) fn new(_: Keep) -> Self {
        let broker = Self(rabbitmq::Rabbitmq::single());
        testkit::block_on(async {
            declare(&channel(&broker.0.url()).await).await;
        });
        broker
    }
}

pub(crate) async fn channel(url: &str) -> Channel {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    connection.create_channel().await.unwrap()
}

/// Makes the queue, if it is not there, and says how many messages it has.
pub(crate) async fn declare(channel: &Channel) -> usize {
    declare_named(channel, QUEUE).await
}

/// A quorum queue whose leader is at the node of the channel.
pub(crate) async fn declare_named(channel: &Channel, queue: &str) -> usize {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut settings = FieldTable::default();
    settings.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(queue.into(), durable, settings).await.unwrap().message_count() as usize
}

#[async_trait]
impl Broker for Rabbitmq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn config(&self) -> String {
        format!("kind = 'rabbitmq'\nurl = '{}'", self.0.url())
    }

    fn safety(&self) -> &'static str {
        "quorum queue"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        let channel = channel(&self.0.url()).await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Box::new(Lapin(channel))
    }

    async fn ids(&self) -> Vec<String> {
        ids(&self.0.url()).await
    }

    switched_by!(0);
}

/// The ids of all that is in the queue, once for each copy.
pub(crate) async fn ids(url: &str) -> Vec<String> {
    let channel = channel(url).await;
    let count = declare(&channel).await;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let mut messages =
        channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await.unwrap();
    let mut ids = Vec::with_capacity(count);
    while ids.len() < count {
        let message = messages.next().await.unwrap().unwrap();
        ids.push(message.properties.message_id().as_ref().unwrap().to_string());
    }
    ids
}

pub(crate) struct Lapin(pub(crate) Channel);

#[async_trait]
impl Bare for Lapin {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = VecDeque::with_capacity(window);
        for Delivery { message, .. } in messages {
            if confirms.len() == window {
                confirmed(confirms.pop_front().unwrap()).await;
            }
            let properties =
                BasicProperties::default().with_message_id(message.id.as_str().into()).with_delivery_mode(2);
            let body = message.body.as_bytes();
            let sent =
                self.0.basic_publish("".into(), message.topic.as_str().into(), mandatory, body, properties);
            confirms.push_back(sent.await.unwrap());
        }
        for confirm in confirms {
            confirmed(confirm).await;
        }
    }
}

async fn confirmed(confirm: lapin::PublisherConfirm) {
    let confirmed = confirm.await.unwrap();
    assert!(confirmed.is_ack() && confirmed.take_message().is_none());
}
