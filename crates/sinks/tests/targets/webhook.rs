//! The far end of webhooks.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{Message, MessageId, Sink, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    http::{HttpServer, Reply, Request},
    sink::{Arrival, Target},
};

/// A real HTTP server, which refuses the path `/hooks/refused`.
pub(crate) struct Webhook {
    server: HttpServer,
}

pub(crate) fn webhook() -> Webhook {
    let decide = |request: &Request| match request.uri.path() {
        "/hooks/refused" => Reply::status(422, "not this one"),
        _ => Reply::status(204, ""),
    };
    Webhook { server: HttpServer::start(decide) }
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

    fn bad(&self, id: MessageId) -> Message {
        Message { topic: "refused".parse().unwrap(), ..self.good(id) }
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let taken = |request: &&Request| request.uri.path() != "/hooks/refused";
        self.server.requests().iter().filter(taken).map(arrival).collect()
    }

    async fn stop(&self) {
        self.server.stop();
    }

    async fn start(&self) {
        self.server.again();
    }
}
