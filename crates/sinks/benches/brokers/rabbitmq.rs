//! RabbitMQ: a durable queue.

use async_trait::async_trait;
use duly_core::Delivery;
use futures_util::future::try_join_all;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::FieldTable,
};
use testkit::servers::rabbitmq::Rabbitmq;

use crate::bed::{Broker, TOPIC};

pub(crate) struct Rabbit {
    url: String,
    channel: Channel,
}

impl Rabbit {
    pub(crate) async fn new(server: &Rabbitmq) -> Self {
        let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(TOPIC.into(), durable, FieldTable::default()).await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { url: server.url(), channel }
    }
}

#[async_trait]
impl Broker for Rabbit {
    fn name(&self) -> &'static str {
        "rabbitmq: persistent, mandatory, confirmed"
    }

    fn config(&self) -> String {
        format!("kind = 'rabbitmq'\nurl = '{}'", self.url)
    }

    async fn bare(&self, batch: &[Delivery]) {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = Vec::with_capacity(batch.len());
        for Delivery { message, .. } in batch {
            let properties =
                BasicProperties::default().with_message_id(message.id.as_str().into()).with_delivery_mode(2);
            let body = message.body.to_bytes();
            let sent = self.channel.basic_publish("".into(), TOPIC.into(), mandatory, &body, properties);
            confirms.push(sent.await.unwrap());
        }
        for confirmed in try_join_all(confirms).await.unwrap() {
            assert!(confirmed.is_ack() && confirmed.take_message().is_none());
        }
    }
}
