//! What each answer means.

use std::time::Duration;

use duly_core::{
    ErrorScope,
    SinkErrorKind::{self, Denied, Misconfigured, Refused, Throttled, Unknown},
};
use http::Response;
use testkit::http::{HttpServer, Reply};

use crate::{by_path, failure, one, sink_to, sink_with};

#[tokio::test]
async fn every_status_means_what_the_documentation_says() {
    let server = by_path();
    let sink = sink_to(&server, "");
    for status in [200, 201, 202, 204, 299] {
        assert_eq!(one(&sink, &status.to_string()).await, Ok(status.to_string()));
    }
    let kinds: &[(&[u16], SinkErrorKind, ErrorScope)] = &[
        (&[300, 304], Unknown, ErrorScope::Target),
        (
            &[400, 402, 405, 406, 410, 411, 412, 413, 414, 415, 417, 418, 422, 426, 428, 431, 451, 499],
            Refused,
            ErrorScope::Target,
        ),
        (&[401, 407], Misconfigured, ErrorScope::Destination),
        (&[403], Denied, ErrorScope::Destination),
        (&[404, 408, 409, 421, 423, 424, 425], Unknown, ErrorScope::Target),
        (&[429, 503], Throttled, ErrorScope::Destination),
        (&[500, 501, 502, 504, 505, 507, 599], Unknown, ErrorScope::Target),
    ];
    for (statuses, kind, scope) in kinds {
        for status in *statuses {
            let error = failure(&sink, &status.to_string()).await;
            assert_eq!((error.kind, error.scope), (*kind, *scope), "{status}");
            assert!(error.detail.contains(&status.to_string()), "{}", error.detail);
        }
    }
}

#[tokio::test]
async fn an_operator_says_which_refusals_are_final() {
    let server = by_path();
    let none = sink_to(&server, "permanent = 'none'");
    for (status, kind) in [("400", Unknown), ("410", Unknown), ("401", Misconfigured), ("429", Throttled)] {
        assert_eq!(failure(&none, status).await.kind, kind, "{status}");
    }
    let these = sink_to(&server, "permanent = [404, 403]");
    for (status, kind) in [("404", Refused), ("403", Refused), ("401", Misconfigured), ("400", Unknown)] {
        assert_eq!(failure(&these, status).await.kind, kind, "{status}");
    }
}

#[tokio::test]
async fn the_receipt_is_the_status_and_the_first_words() {
    let server = HttpServer::start(|request| match request.uri.path() {
        "/long" => Reply::status(200, "x".repeat(5000)),
        "/lines" => Reply::status(201, "\r\n  taken as 7\u{1b}[2J\nmore"),
        "/bytes" => Reply::status(200, vec![0xff, 0xfe, b'a']),
        _ => Reply::status(500, "no room\nat the inn"),
    });
    let sink = sink_to(&server, "");
    assert_eq!(one(&sink, "lines").await.unwrap(), "201 taken as 7[2J");
    assert_eq!(one(&sink, "long").await.unwrap(), format!("200 {}", "x".repeat(200)));
    assert_eq!(one(&sink, "bytes").await.unwrap(), "200 \u{fffd}\u{fffd}a");
    assert_eq!(failure(&sink, "a").await.detail, "the target answered 500 Internal Server Error: no room");
}

#[tokio::test]
async fn the_targets_wish_to_wait_is_passed_on_in_both_forms_and_bounded() {
    // The manual clock stands at 2026-01-01T00:00:00Z.
    let hour = Duration::from_secs(3600);
    for (text, want) in [
        ("120", Some(Duration::from_secs(120))),
        ("0", Some(Duration::ZERO)),
        ("Thu, 01 Jan 2026 00:01:30 GMT", Some(Duration::from_secs(90))),
        ("Thursday, 01-Jan-26 00:01:30 GMT", Some(Duration::from_secs(90))),
        ("Thu Jan  1 00:01:30 2026", Some(Duration::from_secs(90))),
        ("Thu, 01 Jan 1998 00:00:00 GMT", Some(Duration::ZERO)),
        ("Fri, 01 Jan 2100 00:00:00 GMT", Some(hour)),
        ("999999", Some(hour)),
        ("99999999999999999999999999", Some(hour)),
        ("-5", None),
        ("soon", None),
        ("", None),
    ] {
        let server = HttpServer::start(move |request| {
            let status = request.uri.path()[1..].parse().unwrap();
            Reply::header(status, "retry-after", text)
        });
        let sink = sink_to(&server, "");
        for (status, kind) in [("429", Throttled), ("503", Throttled), ("500", Unknown)] {
            let error = failure(&sink, status).await;
            assert_eq!((error.kind, error.retry_after), (kind, want), "{status} {text:?}");
        }
    }
}

/// One path that is busy leaves the others alone, as one service behind a gateway would. But a server that turns away every
/// path is left alone as a whole.
#[tokio::test]
async fn a_busy_path_is_left_alone_and_three_in_a_row_are_the_whole_server() {
    let server = HttpServer::start(|request| match request.uri.path() {
        "/good" => Reply::status(204, ""),
        _ => Reply::header(503, "retry-after", "30"),
    });
    let sink = sink_to(&server, "");
    let scopes = async |paths: &[&str]| {
        let mut scopes = Vec::new();
        for path in paths {
            let error = failure(&sink, path).await;
            assert_eq!((error.kind, error.retry_after), (Throttled, Some(Duration::from_secs(30))), "{path}");
            scopes.push(error.scope);
        }
        scopes
    };
    use ErrorScope::{Destination, Target};
    assert_eq!(scopes(&["a", "a", "b", "a", "/b"]).await, [Destination; 5]);
    one(&sink, "good").await.unwrap();
    assert_eq!(scopes(&["a", "b", "c", "c"]).await, [Destination, Destination, Target, Target]);
    one(&sink, "good").await.unwrap();
    assert_eq!(scopes(&["c"]).await, [Destination]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = by_path();
    let elsewhere = other.url();
    let server = HttpServer::start(move |request| match request.uri.path() {
        "/same" => Reply::header(307, "location", "/elsewhere"),
        "/odd" => Reply::header(302, "location", "http://[broken"),
        _ => Reply::header(308, "location", &format!("{elsewhere}/a?token=s3cret")),
    });
    let sink = sink_to(&server, "");
    let error = failure(&sink, "a").await;
    assert_eq!((error.kind, error.scope), (Misconfigured, ErrorScope::Destination), "the url is at fault");
    assert!(error.detail.contains("redirects are not followed") && !error.detail.contains("s3cret"));
    assert_eq!(failure(&sink, "same").await.kind, Unknown, "perhaps only this path");
    assert_eq!(failure(&sink, "odd").await.kind, Unknown);
    assert_eq!((server.requests().len(), other.connections()), (3, 0));
}

#[tokio::test]
async fn an_answer_without_an_end_is_read_to_a_bound() {
    let server = HttpServer::start(|request| match request.uri.path() {
        "/endless" => Reply::Endless(Response::new(vec![b'x'; 16 * 1024].into())),
        _ => Reply::status(200, ""),
    });
    let sink = sink_to(&server, "");
    assert_eq!(one(&sink, "endless").await.unwrap(), format!("200 {}", "x".repeat(200)));
    one(&sink, "after").await.unwrap();
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 2], "the connection went with the rest of the answer");
    // What the sockets buffer is taken too, but not more and more.
    assert!(server.streamed() < 32 * 1024 * 1024, "{} bytes were taken", server.streamed());
}

#[tokio::test]
async fn an_answer_that_stops_in_the_middle_is_not_waited_for() {
    let server = HttpServer::start(|request| match request.uri.path() {
        "/good" => Reply::Unfinished(Response::new("taken".into())),
        _ => Reply::Unfinished(Response::builder().status(500).body("oh".into()).unwrap()),
    });
    let (sink, clock) = sink_with(&format!("url = '{}'\nallow_private = true", server.url()));
    for (topic, want) in [("good", Ok("200 taken".to_owned())), ("bad", Err(Unknown))] {
        let start = duly_core::Clock::now(&clock).mono();
        let call = one(&sink, topic);
        let passing = async {
            // Once the head is there, only a second is given to the rest.
            while clock.next_deadline() != Some(start.saturating_add(Duration::from_secs(1))) {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(1));
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! { outcome = call => outcome, () = passing => unreachable!() };
        match (outcome, want) {
            // How much of the body came before the second was over is not promised.
            (Ok(receipt), Ok(want)) => assert!(want.starts_with(receipt.as_str()), "{receipt}"),
            (outcome, want) => assert_eq!(outcome.map_err(|error| error.kind), want),
        }
    }
}
