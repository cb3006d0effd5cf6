//! What is kept of many origins.

use std::{sync::Arc, time::Duration};

use duly::ManualClock;
use duly_core::{Delivery, Sink, StoredMessage, Timestamp};
use testkit::{
    http::{HttpServer, Reply},
    servers::wait_until,
};

use crate::{
    WebhookConfig,
    webhook::{WebhookSink, settings::Settings, stream::KEPT_MAX},
};

const ORIGINS: usize = 10_000;
/// Messages of one call.
const CALL: usize = 125;
/// The client closes a connection when it finds the time to.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message to each of the origins from `first` on. The loopback network has enough of them.
fn call(first: usize, port: u16, path: &str) -> Vec<Delivery> {
    let message = |n: usize| {
        let topic = format!("http://127.1.{}.{}:{port}/{path}", n / 250, n % 250 + 1);
        let (id, sink) = (format!("m{n}").parse().unwrap(), "hooks".parse().unwrap());
        Delivery::new(StoredMessage::new(id, sink, topic.parse().unwrap(), Timestamp::from_millis(1)), 1)
    };
    (first..first + CALL).map(message).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_origins_are_forgotten_with_their_requests_and_few_connections_kept() {
    let server = HttpServer::start_everywhere(|request| match request.uri.path() {
        "/silent" => Reply::Never,
        _ => Reply::status(204, ""),
    });
    let port = server.addr().port();
    let config: WebhookConfig = toml::from_str("allow_urls = ['http://*:*']\nallow_private = true").unwrap();
    let sink = WebhookSink::new(Settings::read(&config).unwrap(), Arc::new(ManualClock::new())).unwrap();
    let is_bounded = |connections: usize| {
        let what = format!("{connections} connections are open at most");
        tokio::task::block_in_place(|| {
            wait_until(&what, PATIENCE, || sink.named.connector.open() <= connections);
        });
    };
    for first in (0..ORIGINS).step_by(CALL) {
        let outcomes = sink.deliver(&call(first, port, "hook")).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(sink.origins.len(), 0, "none has a request any more");
        is_bounded(KEPT_MAX);
    }
    assert_eq!(server.requests().len(), ORIGINS);
    // A call that is given up leaves nothing either.
    let silent = call(0, port, "silent");
    let mut given_up = Box::pin(sink.deliver(&silent));
    tokio::select! {
        biased;
        outcomes = &mut given_up => panic!("{outcomes:?}"),
        _ = server.wait_for(ORIGINS + CALL) => {}
    }
    assert_eq!(sink.origins.len(), CALL);
    drop(given_up);
    assert_eq!(sink.origins.len(), 0);
    is_bounded(KEPT_MAX);
}
