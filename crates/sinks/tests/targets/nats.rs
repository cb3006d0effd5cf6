//! The far end of NATS: a real server, and a reader of its stream.

use std::sync::Arc;

use async_nats::jetstream::{self, stream::Config};
use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Message, MessageId, Sink, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::nats::Nats,
    sink::{Arrival, Target},
};

/// A server with one stream.
pub(crate) struct Stream {
    server: Nats,
}

pub(crate) fn nats() -> Stream {
    Stream { server: Nats::single() }
}

impl Stream {
    /// The stream, which is made when it is first asked for.
    async fn stream(&self) -> jetstream::stream::Stream {
        let client = async_nats::connect(self.server.url()).await.unwrap();
        let config = Config { name: "S".into(), subjects: vec!["topic".into()], ..Config::default() };
        jetstream::new(client).get_or_create_stream(config).await.unwrap()
    }
}

fn arrival(message: &jetstream::message::StreamMessage) -> Arrival {
    let get = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
    let text = |name: &str| get(name).unwrap();
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: message.subject.to_string(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: text("content-type"),
        body: message.payload.clone(),
        properties: message
            .headers
            .iter()
            .map(|(name, values)| (name.to_string(), values[0].as_str().to_owned()))
            .collect(),
    }
}

#[async_trait]
impl Target for Stream {
    fn sink(&self) -> Arc<dyn Sink> {
        // Made here, as the target itself is made where nothing can be awaited.
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.stream()));
        let config = format!("kind = 'nats'\nurl = '{}'", self.server.url());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    /// No subject has a space in it.
    fn bad(&self, id: MessageId) -> Message {
        Message { topic: "nobody wants this".parse().unwrap(), ..self.good(id) }
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let mut stream = self.stream().await;
        let state = stream.info().await.unwrap().state.clone();
        let mut arrivals = Vec::new();
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            arrivals.push(arrival(&stream.get_raw_message(sequence).await.unwrap()));
        }
        arrivals
    }

    async fn stop(&self) {
        self.server.kill();
    }

    async fn start(&self) {
        self.server.start();
    }
}
