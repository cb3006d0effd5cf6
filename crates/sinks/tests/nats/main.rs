//! The sink into NATS against real servers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod cluster;
mod config;
mod core;
mod creds;
mod failures;
mod inspect;
mod once;
mod rights;
mod tls;
mod whole;

use std::sync::Arc;

use async_nats::jetstream::{
    self,
    stream::{Config, Stream},
};
use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use testkit::{
    servers::nats::Nats,
    sink::{failure, one, to},
};

fn configured(url: &str, settings: &str) -> SinkConfig {
    toml::from_str(&format!("kind = 'nats'\nurl = '{url}'\n{settings}")).unwrap()
}

/// A sink to `url`, with more settings.
fn sink_with(url: &str, settings: &str) -> Arc<dyn Sink> {
    configured(url, settings).build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(nats: &Nats) -> Arc<dyn Sink> {
    sink_with(&nats.url(), "")
}

/// A stream of all subjects that begin with `orders`, with these settings.
async fn stream(url: &str, config: Config) -> Stream {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let subjects = vec!["orders".into(), "orders.>".into()];
    context.get_or_create_stream(Config { name: "ORDERS".into(), subjects, ..config }).await.unwrap()
}

async fn orders(nats: &Nats) -> Stream {
    stream(&nats.url(), Config::default()).await
}

/// The ids of the messages in the stream, in its order.
async fn ids(stream: &mut Stream) -> Vec<String> {
    let state = stream.info().await.unwrap().state.clone();
    let mut ids = Vec::new();
    for sequence in state.first_sequence.max(1)..=state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        ids.push(message.headers.get("duly-id").unwrap().to_string());
    }
    ids
}
