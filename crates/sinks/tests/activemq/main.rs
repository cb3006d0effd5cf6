//! The sink into ActiveMQ against real brokers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod answers;
mod artemis;
mod config;
mod failover;
mod failures;
mod held_up;
mod messages;
mod once;
mod reader;
mod scripted;
mod tls;
mod whole;

use std::sync::Arc;

use duly::SystemClock;
use duly_core::Sink;
use duly_sinks::SinkConfig;
use testkit::{
    servers::activemq::Activemq,
    sink::{failure, one, to},
};

/// A sink to `url`, with more settings.
fn sink_with(url: &str, settings: &str) -> Arc<dyn Sink> {
    let config: SinkConfig =
        toml::from_str(&format!("kind = 'activemq'\nurl = '{url}'\n{settings}")).unwrap();
    config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn sink_to(broker: &Activemq) -> Arc<dyn Sink> {
    sink_with(&broker.url(), "request_timeout = '60s'")
}

/// The address of a port where the broker is, or a proxy before it.
fn url(port: u16) -> String {
    format!("stomp://duly:p%40ss@127.0.0.1:{port}")
}

/// The ids of the messages in a queue, in its order.
async fn ids(broker: &Activemq, queue: &str) -> Vec<String> {
    let (port, queue) = (broker.port(), queue.to_owned());
    let all = tokio::task::spawn_blocking(move || reader::read(port, &queue)).await.unwrap();
    all.into_iter().map(|arrival| arrival.id.to_string()).collect()
}
