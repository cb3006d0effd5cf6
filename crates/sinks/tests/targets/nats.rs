//! The far end of NATS: a real server, and a reader of its stream.

use std::sync::Arc;

use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        stream::{Config, DiscardPolicy},
    },
};
use async_trait::async_trait;
use bytes::Bytes;
use duly::SystemClock;
use duly_core::{Body, MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use futures_util::StreamExt;
use testkit::{
    servers::nats::Nats,
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::{Mutex, watch};

/// A server with one stream.
pub(crate) struct Stream {
    server: Nats,
    listeners: Mutex<Listeners>,
}

/// The stream takes no larger message: the largest body of Duly with its headers, and less than the server takes.
const MESSAGE_BYTES_MAX: i32 = 1_500_000;

/// Those who are no streams.
#[derive(Default)]
struct Listeners {
    silent: Option<async_nats::Subscriber>,
    slow: Option<watch::Sender<bool>>,
    /// What the slow one has acknowledged.
    taken: Arc<std::sync::Mutex<Vec<Arrival>>>,
}

pub(crate) fn nats() -> Stream {
    Stream { server: Nats::single(), listeners: Mutex::default() }
}

impl Stream {
    fn to(&self, subject: &str, id: MessageId) -> StoredMessage {
        StoredMessage { topic: subject.parse().unwrap(), ..self.good(id) }
    }

    /// The stream, which is made when it is first asked for.
    async fn stream(&self) -> jetstream::stream::Stream {
        let client = async_nats::connect(self.server.url()).await.unwrap();
        let config = Config {
            name: "S".into(),
            subjects: vec!["topic".into()],
            max_message_size: MESSAGE_BYTES_MAX,
            ..Config::default()
        };
        jetstream::new(client).get_or_create_stream(config).await.unwrap()
    }
}

fn arrival(message: &jetstream::message::StreamMessage) -> Arrival {
    arrival_of(&message.subject, &message.headers, &message.payload)
}

fn core_arrival(message: &async_nats::Message) -> Arrival {
    arrival_of(&message.subject, message.headers.as_ref().unwrap(), &message.payload)
}

fn arrival_of(subject: &str, headers: &HeaderMap, body: &Bytes) -> Arrival {
    let get = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let text = |name: &str| get(name).unwrap();
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: subject.to_owned(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: text("content-type"),
        body: body.clone(),
        properties: headers
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
        // What others do beside a silent one comes before the sink gives that up, however slow the machine.
        let is_silent = self.listeners.try_lock().is_ok_and(|listeners| listeners.silent.is_some());
        let timeout = if is_silent { "request_timeout = '60s'" } else { "" };
        let config = format!("kind = 'nats'\nurl = '{}'\n{timeout}", self.server.url());
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    /// No subject has a space in it.
    fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "nobody wants this".parse().unwrap(), ..self.good(id) }
    }

    /// The server takes it, and the stream does not.
    fn refused_there(&self, id: MessageId) -> Option<StoredMessage> {
        let body = Body::bytes(vec![b'x'; MESSAGE_BYTES_MAX as usize + 1]);
        Some(StoredMessage { body, ..self.good(id) })
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("nats", "JetStream"), state)
    }

    /// Somebody listens there who is no stream, and answers as one would when told to.
    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        let mut listeners = self.listeners.lock().await;
        if listeners.slow.is_none() {
            let (release, released) = watch::channel(false);
            let client = async_nats::connect(self.server.url()).await.unwrap();
            let mut subscriber = client.subscribe("slow").await.unwrap();
            client.flush().await.unwrap();
            let taken = listeners.taken.clone();
            tokio::spawn(async move {
                let mut released = released;
                while let Some(message) = subscriber.next().await {
                    released.wait_for(|is_released| *is_released).await.unwrap();
                    taken.lock().unwrap().push(core_arrival(&message));
                    let answer = r#"{"stream":"SLOW","seq":1}"#;
                    client.publish(message.reply.unwrap(), answer.into()).await.unwrap();
                }
            });
            listeners.slow = Some(release);
        }
        Some(self.to("slow", id))
    }

    async fn release(&self) {
        self.listeners.lock().await.slow.as_ref().unwrap().send_replace(true);
    }

    /// Somebody listens there who is no stream, and never answers.
    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        let mut listeners = self.listeners.lock().await;
        if listeners.silent.is_none() {
            let client = async_nats::connect(self.server.url()).await.unwrap();
            listeners.silent = Some(client.subscribe("silent").await.unwrap());
            client.flush().await.unwrap();
        }
        Some(self.to("silent", id))
    }

    /// No stream has the subject.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("nowhere", id))
    }

    /// The stream holds one message, and that is all it takes.
    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        let context = jetstream::new(async_nats::connect(self.server.url()).await.unwrap());
        let (discard, subjects) = (DiscardPolicy::New, vec!["full".into()]);
        let full = Config { name: "FULL".into(), subjects, max_messages: 1, discard, ..Config::default() };
        let mut stream = context.get_or_create_stream(full).await.unwrap();
        if stream.info().await.unwrap().state.messages == 0 {
            context.publish("full", "first".into()).await.unwrap().await.unwrap();
        }
        Some(self.to("full", id))
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let mut stream = self.stream().await;
        let state = stream.info().await.unwrap().state.clone();
        let mut arrivals = self.listeners.lock().await.taken.lock().unwrap().clone();
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
