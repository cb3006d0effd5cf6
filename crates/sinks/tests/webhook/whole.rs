//! Topics that are whole addresses.

use std::time::Duration;

use duly_core::SinkErrorKind;
use testkit::http::{HttpServer, Reply};

use crate::{by_path, failure, one, sink_with};

#[tokio::test]
async fn a_whole_url_is_delivered_where_it_says() {
    let server = by_path();
    let (sink, _) = sink_with("allow_urls = ['http://127.0.0.1:*/hooks/*']\nallow_private = ['127.0.0.0/8']");
    one(&sink, &format!("{}/hooks/a?b=c", server.url())).await.unwrap();
    assert_eq!(server.requests()[0].uri.to_string(), "/hooks/a?b=c");
    for topic in [format!("{}/other", server.url()), "hooks/a".into(), "https://127.0.0.1/hooks/a".into()] {
        let error = failure(&sink, &topic).await;
        assert_eq!(error.kind, SinkErrorKind::Refused, "{topic}");
        assert!(error.detail.ends_with("[bad_topic]"), "{}", error.detail);
    }
    assert_eq!(server.requests().len(), 1);
}

/// One customer's endpoint is not the lane: its outage must not stop the others, nor be waited out for ever.
#[tokio::test]
async fn the_outage_of_one_url_is_the_failure_of_its_message_alone() {
    let server = HttpServer::start(|request| match request.uri.path() {
        "/busy" => Reply::header(503, "retry-after", "30"),
        "/locked" => Reply::status(401, ""),
        "/moved" => Reply::header(301, "location", "https://elsewhere.example/"),
        _ => Reply::status(410, ""),
    });
    let gone = by_path();
    gone.stop();
    let settings = format!("url = '{}'\nallow_urls = ['http://127.0.0.1:*', 'http://*.invalid']", gone.url());
    let (sink, _) = sink_with(&format!("{settings}\nallow_private = true"));
    assert_eq!(failure(&sink, "a").await.kind, SinkErrorKind::Unreachable, "the sink's own target");
    for topic in [
        format!("{}/a", gone.url()),
        format!("{}/busy", server.url()),
        format!("{}/locked", server.url()),
        format!("{}/moved", server.url()),
        "http://no-such-host.invalid/".into(),
    ] {
        let error = failure(&sink, &topic).await;
        assert_eq!(error.kind, SinkErrorKind::Unknown, "{topic}: {}", error.detail);
        let wish = topic.ends_with("busy").then_some(Duration::from_secs(30));
        assert_eq!(error.retry_after, wish, "{topic}");
    }
    assert_eq!(failure(&sink, &format!("{}/gone", server.url())).await.kind, SinkErrorKind::Refused);
}
