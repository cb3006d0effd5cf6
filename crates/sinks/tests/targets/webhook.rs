//! The far end of webhooks.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use http::Response;
use testkit::{
    http::{HttpServer, Reply, Request},
    sink::{Arrival, CannotShow, Target},
};
use tokio::sync::watch;

/// A real HTTP server. Some paths below `/hooks` do not take what comes, or not at once.
pub(crate) struct Webhook {
    server: HttpServer,
    released: watch::Sender<bool>,
}

/// Paths that take nothing.
const CLOSED: [&str; 3] = ["/hooks/refused", "/hooks/forbidden", "/hooks/full"];

pub(crate) fn webhook() -> Webhook {
    let (released, release_rx) = watch::channel(false);
    let decide = move |request: &Request| match request.uri.path() {
        "/hooks/refused" => Reply::status(422, "not this one"),
        "/hooks/forbidden" => Reply::status(403, ""),
        "/hooks/full" => Reply::header(429, "retry-after", "5"),
        "/hooks/silent" => Reply::Never,
        "/hooks/slow" => Reply::AfterSignal(Response::new(Bytes::new()), release_rx.clone()),
        _ => Reply::status(204, ""),
    };
    Webhook { server: HttpServer::start(decide), released }
}

fn arrival(request: &Request) -> Arrival {
    let text = |name: &str| request.header(name).unwrap_or_default();
    let pair = |name: &http::HeaderName| (name.to_string(), text(name.as_str()));
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: text("duly-topic"),
        tag: request.header("duly-tag"),
        key: request.header("duly-key"),
        content_type: text("content-type"),
        body: request.body.clone(),
        properties: request.headers.keys().map(pair).collect::<BTreeMap<_, _>>(),
    }
}

impl Webhook {
    fn to(&self, topic: &str, id: MessageId) -> StoredMessage {
        StoredMessage { topic: topic.parse().unwrap(), ..self.good(id) }
    }
}

#[async_trait]
impl Target for Webhook {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!(
            "kind = 'webhook'\nurl = '{}/hooks'\nallow_private = true\nrequest_timeout = '60s'\nsecret = 'words'",
            self.server.url()
        );
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn bad(&self, id: MessageId) -> StoredMessage {
        self.to("refused", id)
    }

    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("slow", id))
    }

    async fn release(&self) {
        self.released.send_replace(true);
    }

    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("silent", id))
    }

    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("forbidden", id))
    }

    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        Some(self.to("full", id))
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("webhook", "shown by"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let taken = |request: &&Request| !CLOSED.contains(&request.uri.path());
        self.server.requests().iter().filter(taken).map(arrival).collect()
    }

    async fn stop(&self) {
        self.server.stop();
    }

    async fn start(&self) {
        self.server.again();
    }
}
