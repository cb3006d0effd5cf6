//! Topics that are whole addresses.

use std::{net::TcpListener, sync::Mutex, time::Duration};

use duly_core::{
    Clock, ErrorScope, Outcomes, SinkError,
    SinkErrorKind::{self, Denied, Refused, Throttled, Unknown, Unreachable},
};
use testkit::http::{HttpServer, Reply};

use crate::{by_path, failure, one, sink_with, to};

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
        "/limited" => Reply::status(429, ""),
        "/away" => Reply::status(503, ""),
        "/locked" => Reply::status(401, ""),
        "/closed" => Reply::status(403, ""),
        "/moved" => Reply::header(301, "location", "https://elsewhere.example/"),
        "/broken" => Reply::status(500, ""),
        "/cut" => Reply::HangUp,
        _ => Reply::status(410, ""),
    });
    let closed = by_path();
    closed.stop();
    let settings = format!(
        "url = '{}'\nallow_urls = ['http://127.0.0.1:*', 'https://127.0.0.1:*', 'http://*.invalid']",
        closed.url()
    );
    let (sink, _) = sink_with(&format!("{settings}\nallow_private = true"));
    let own = failure(&sink, "a").await;
    assert_eq!((own.kind, own.scope), (Unreachable, ErrorScope::Target), "the sink's own target");
    let path = |path: &str| format!("{}/{path}", server.url());
    for (topic, kind, scope) in [
        (format!("{}/a", closed.url()), Denied, ErrorScope::Destination),
        (format!("https://{}/a", server.addr()), Denied, ErrorScope::Destination),
        ("http://no-such-host.invalid/".into(), Denied, ErrorScope::Destination),
        (path("locked"), Denied, ErrorScope::Destination),
        (path("closed"), Denied, ErrorScope::Destination),
        (path("moved"), Denied, ErrorScope::Destination),
        (path("busy"), Throttled, ErrorScope::Destination),
        (path("limited"), Throttled, ErrorScope::Destination),
        (path("away"), Unknown, ErrorScope::Target),
        (path("broken"), Unknown, ErrorScope::Target),
        (path("cut"), Unknown, ErrorScope::Destination),
        (path("gone"), Refused, ErrorScope::Target),
    ] {
        let error = failure(&sink, &topic).await;
        assert_eq!((error.kind, error.scope), (kind, scope), "{topic}: {}", error.detail);
        let wish = topic.ends_with("busy").then_some(Duration::from_secs(30));
        assert_eq!(error.retry_after, wish, "{topic}");
    }
}

/// A connection that is not made in time was used by nobody: the message has surely not arrived.
#[tokio::test]
async fn a_url_that_does_not_finish_connecting_denies_its_message() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sink, clock) =
        sink_with("allow_urls = ['https://*:*']\nallow_private = true\nrequest_timeout = '1s'");
    let end = clock.now().mono().saturating_add(Duration::from_secs(1));
    let topic = format!("https://{}/a", silent.local_addr().unwrap());
    let passing = async {
        while clock.next_deadline() != Some(end) {
            tokio::task::yield_now().await;
        }
        clock.advance_to(end);
    };
    let (error, ()) = tokio::join!(failure(&sink, &topic), passing);
    assert_eq!((error.kind, error.scope), (Denied, ErrorScope::Destination), "{}", error.detail);
}

/// A dead origin with a new path for every message has a destination for every message, and no breaker to stop them.
#[tokio::test]
async fn an_origin_takes_no_more_room_than_its_share() {
    let silent = HttpServer::start(|_| Reply::Never);
    let good = by_path();
    let (sink, clock) = sink_with("allow_urls = ['http://127.0.0.1:*']\nallow_private = true");
    let to_silent = (0..80).map(|n| to(&format!("{}/{n}", silent.url())));
    let to_good = (0..4).map(|n| to(&format!("{}/good/{n}", good.url())));
    let batch: Vec<_> = to_silent.chain(to_good).collect();
    let known = Mutex::new(Vec::new());
    let report = |index, result: Result<String, SinkError>| known.lock().unwrap().push((index, result));
    let outcomes = Outcomes::new(&report);
    let passing = async {
        silent.wait_for(64).await;
        // All others are known while these are not.
        while known.lock().unwrap().len() < 20 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(7));
    };
    tokio::join!(sink.deliver_each(&batch, &outcomes), passing);
    assert_eq!(silent.requests().len(), 64);
    let mut known = known.into_inner().unwrap();
    assert!(known.split_off(20).into_iter().all(|(_, result)| result.unwrap_err().kind == Unknown));
    for (index, result) in known {
        match result {
            Ok(_) => assert!(index >= 80, "{index}"),
            Err(error) => {
                assert_eq!((error.kind, error.scope), (Throttled, ErrorScope::Destination), "{index}");
            }
        }
    }
}
