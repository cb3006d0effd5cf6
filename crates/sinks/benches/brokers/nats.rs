//! NATS: a stream in a file.

use async_nats::{
    HeaderMap,
    jetstream::{self, Context, stream::Config},
};
use async_trait::async_trait;
use duly_core::Delivery;
use futures_util::future::try_join_all;
use testkit::servers::nats::Nats;

use crate::bed::{Broker, TOPIC};

pub(crate) struct Stream {
    url: String,
    context: Context,
}

impl Stream {
    pub(crate) async fn new(server: &Nats) -> Self {
        let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let config = Config { name: "ORDERS".into(), subjects: vec![TOPIC.into()], ..Config::default() };
        context.create_stream(config).await.unwrap();
        Self { url: server.url(), context }
    }
}

#[async_trait]
impl Broker for Stream {
    fn name(&self) -> &'static str {
        "nats: messages stored by JetStream"
    }

    fn config(&self) -> String {
        format!("kind = 'nats'\nurl = '{}'", self.url)
    }

    async fn bare(&self, batch: &[Delivery]) {
        let mut acks = Vec::with_capacity(batch.len());
        for Delivery { message, .. } in batch {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", message.id.as_str());
            let body = message.body.to_bytes();
            let ack = self.context.publish_with_headers(TOPIC, headers, body).await.unwrap();
            acks.push(ack.into_future());
        }
        try_join_all(acks).await.unwrap();
    }
}
