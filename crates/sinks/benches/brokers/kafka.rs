//! Kafka: a topic of three partitions.

#[path = "../../tests/kafka/reader.rs"]
pub(crate) mod reader;

use std::collections::VecDeque;

use async_trait::async_trait;
use duly_core::Delivery;
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{DeliveryFuture, FutureProducer, FutureRecord},
};
use testkit::servers::kafka;

use crate::broker::{Bare, Broker, Keep, switched_by};

pub(crate) const TOPIC: &str = "orders";

pub(crate) struct Kafka(kafka::Kafka);

impl Kafka {
    pub(crate) fn new(keep: Keep) -> Self {
        let broker = Self(kafka::Kafka::start_new());
        let settings: &[_] = if keep == Keep::Safely { &[("flush.messages", "1")] } else { &[] };
        testkit::block_on(reader::make_topic(&broker.0.address(), TOPIC, 3, settings));
        broker
    }
}

#[async_trait]
impl Broker for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn config(&self) -> String {
        format!("kind = 'kafka'\nbrokers = '{}'", self.0.address())
    }

    fn safety(&self) -> &'static str {
        "flush.messages=1"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Producer::to(&self.0.address()))
    }

    async fn ids(&self) -> Vec<String> {
        let address = self.0.address();
        let read = tokio::task::spawn_blocking(move || reader::read(&address, TOPIC)).await.unwrap();
        read.into_iter().map(|arrival| arrival.id.to_string()).collect()
    }

    switched_by!(0);
}

pub(crate) struct Producer(FutureProducer);

impl Producer {
    pub(crate) fn to(brokers: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("acks", "all").set("enable.idempotence", "true");
        // As the sink: a window that is full waits for nothing.
        config.set("linger.ms", "0");
        Self(config.create().unwrap())
    }
}

#[async_trait]
impl Bare for Producer {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        let mut confirms: VecDeque<DeliveryFuture> = VecDeque::with_capacity(window);
        for Delivery { message, .. } in messages {
            if confirms.len() == window {
                confirms.pop_front().unwrap().await.unwrap().unwrap();
            }
            let id = Header { key: "duly-id", value: Some(message.id.as_str()) };
            let headers = OwnedHeaders::new_with_capacity(1).insert(id);
            let record = FutureRecord::<str, [u8]>::to(message.topic.as_str())
                .payload(message.body.as_bytes())
                .headers(headers);
            confirms.push_back(self.0.send_result(record).map_err(|(error, _)| error).unwrap());
        }
        for confirm in confirms {
            confirm.await.unwrap().unwrap();
        }
    }
}
