//! The sink into MQTT against real brokers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod answers;
mod config;
mod failures;
mod once;
mod reader;
mod scripted;
mod session;
mod tls;
mod versions;
mod whole;

use std::sync::Arc;

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use testkit::{
    servers::mosquitto::Mosquitto,
    sink::{failure, one, to},
};

/// A sink to `url`, with more settings.
fn sink_with(url: &str, settings: &str) -> Arc<dyn Sink> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'mqtt'\nurl = '{url}'\n{settings}")).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(broker: &Mosquitto) -> Arc<dyn Sink> {
    sink_with(&broker.url(), "request_timeout = '60s'")
}

/// The address of a port where the broker is, or a proxy before it.
fn url(port: u16) -> String {
    format!("mqtt://duly:p%40ss@127.0.0.1:{port}")
}

/// The ids of what was published, in order.
fn ids(reader: &mut reader::Reader) -> Vec<String> {
    reader.read().into_iter().map(|published| published.user["duly-id"].clone()).collect()
}
