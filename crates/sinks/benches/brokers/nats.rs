//! NATS: a stream in a file.

use std::collections::VecDeque;

use async_nats::{
    HeaderMap,
    jetstream::{self, Context, consumer::pull, stream::Config},
};
use async_trait::async_trait;
use duly_core::Delivery;
use futures_util::StreamExt;
use testkit::servers::nats;

use crate::broker::{Bare, Broker, switched_by};

pub(crate) const SUBJECT: &str = "orders";
pub(crate) const STREAM: &str = "ORDERS";

pub(crate) struct Nats(nats::Nats);

impl Nats {
    pub(crate) fn new() -> Self {
        let broker = Self(nats::Nats::single());
        testkit::block_on(async {
            let config = Config { name: STREAM.into(), subjects: vec![SUBJECT.into()], ..Config::default() };
            context(&broker.0.url()).await.create_stream(config).await.unwrap();
        });
        broker
    }
}

async fn context(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

/// The ids of all that the stream has.
pub(crate) async fn ids(context: &Context) -> Vec<String> {
    let stream = context.get_stream(STREAM).await.unwrap();
    let count = stream.cached_info().state.messages as usize;
    let reader = stream.create_consumer(pull::OrderedConfig::default()).await.unwrap();
    let messages = reader.messages().await.unwrap().take(count);
    let id = |message: jetstream::Message| {
        message.headers.as_ref().and_then(|headers| headers.get("duly-id")).unwrap().to_string()
    };
    messages.map(|message| id(message.unwrap())).collect().await
}

#[async_trait]
impl Broker for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn config(&self) -> String {
        format!("kind = 'nats'\nurl = '{}'", self.0.url())
    }

    fn safety(&self) -> &'static str {
        "stream in a file, duplicate window 2 min"
    }

    fn knows_copies(&self) -> bool {
        true
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Client(context(&self.0.url()).await))
    }

    async fn ids(&self) -> Vec<String> {
        ids(&context(&self.0.url()).await).await
    }

    switched_by!(0);
}

pub(crate) struct Client(pub(crate) Context);

#[async_trait]
impl Bare for Client {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        let mut acks = VecDeque::with_capacity(window);
        for Delivery { message, .. } in messages {
            if acks.len() == window {
                let ack: jetstream::context::PublishAckFuture = acks.pop_front().unwrap();
                ack.await.unwrap();
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", message.id.as_str());
            let body = message.body.to_bytes();
            acks.push_back(
                self.0.publish_with_headers(message.topic.as_str().to_owned(), headers, body).await.unwrap(),
            );
        }
        for ack in acks {
            ack.await.unwrap();
        }
    }
}
