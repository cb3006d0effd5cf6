//! The webhook sink against real servers.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod answers;
mod config;
mod fields;
mod http2;
mod isolation;
mod secrets;
mod time;
mod tls;
mod whole;

use std::sync::Arc;

use duly::ManualClock;
use duly_core::{Body, Delivery, Sink, SinkError, SinkErrorKind, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::http::{HttpServer, Reply};

/// A sink with these settings, and the clock in the test's hand.
fn sink_with(settings: &str) -> (Arc<dyn Sink>, ManualClock) {
    let config: SinkConfig = toml::from_str(&format!("kind = 'webhook'\n{settings}")).unwrap();
    let clock = ManualClock::new();
    (config.build(Arc::new(clock.clone())).unwrap(), clock)
}

/// A sink to `server`, with more settings.
fn sink_to(server: &HttpServer, settings: &str) -> Arc<dyn Sink> {
    sink_with(&format!("url = '{}'\nallow_private = true\n{settings}", server.url())).0
}

fn message(topic: &str) -> StoredMessage {
    let (id, sink) = ("order-42".parse().unwrap(), "hooks".parse().unwrap());
    let message =
        StoredMessage::new(id, sink, topic.parse().unwrap(), Timestamp::from_millis(1_767_225_599_000));
    StoredMessage { body: Body::text("body"), ..message }
}

fn to(topic: &str) -> Delivery {
    Delivery::new(message(topic), 1)
}

async fn one(sink: &Arc<dyn Sink>, topic: &str) -> Result<String, SinkError> {
    sink.deliver(&[to(topic)]).await.remove(0)
}

async fn failure(sink: &Arc<dyn Sink>, topic: &str) -> SinkError {
    one(sink, topic).await.unwrap_err()
}

/// Answers the path `/500` with the status 500, and so on.
fn by_path() -> HttpServer {
    HttpServer::start(|request| {
        let status = request.uri.path().trim_start_matches('/').parse().unwrap_or(204);
        Reply::status(status, "")
    })
}

#[tokio::test]
async fn connections_are_kept_and_there_are_no_more_than_allowed() {
    let server = by_path();
    let sink = sink_to(&server, "per_origin = 4");
    for _ in 0..20 {
        one(&sink, "a").await.unwrap();
    }
    assert_eq!(server.connections(), 1, "one after the other on one connection");
    let batch: Vec<_> = (0..200).map(|_| to("a")).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok));
    // A connection that was begun while another became free is one more than were used.
    assert!(server.connections() <= 8, "{} connections for 4 requests at a time", server.connections());
}

#[tokio::test]
async fn a_probe_connects_and_sends_nothing() {
    let server = by_path();
    sink_to(&server, "").probe().await.unwrap();
    // What was sent before is seen before what comes after.
    one(&sink_to(&server, ""), "a").await.unwrap();
    assert_eq!((server.connections(), server.requests().len()), (2, 1));
    let (nowhere, _) = sink_with("allow_urls = ['https://*']");
    nowhere.probe().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_cut_leaves_the_outcome_unknown() {
    let server = HttpServer::start(|_| Reply::HangUp);
    let error = failure(&sink_to(&server, ""), "a").await;
    assert_eq!(error.kind, SinkErrorKind::Unknown, "{}", error.detail);
    assert_eq!(server.requests().len(), 1, "it is for the scheduler to try again");
}
