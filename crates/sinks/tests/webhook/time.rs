//! What happens when time runs out.

use std::{collections::BTreeMap, net::TcpListener, sync::Mutex, time::Duration};

use duly_core::{Clock, ErrorScope, Outcomes, SinkError, SinkErrorKind};
use testkit::http::{HttpServer, Reply};

use crate::{failure, sink_with, to};

/// Never answers the path `/never`.
fn slow() -> HttpServer {
    HttpServer::start(|request| match request.uri.path() {
        "/never" => Reply::Never,
        _ => Reply::status(204, ""),
    })
}

fn settings(server: &HttpServer, more: &str) -> String {
    format!("url = '{}'\nallow_private = true\n{more}", server.url())
}

#[tokio::test]
async fn no_answer_in_time_is_unknown_and_hurts_no_neighbour() {
    let server = slow();
    let (sink, clock) = sink_with(&settings(&server, "request_timeout = '7s'"));
    let batch = ["never", "a", "b", "never"].map(to);
    let known = Mutex::new(BTreeMap::new());
    let report = |index, result: Result<String, SinkError>| drop(known.lock().unwrap().insert(index, result));
    let outcomes = Outcomes::new(&report);
    let passing = async {
        server.wait_for(4).await;
        while known.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(7));
    };
    tokio::join!(sink.deliver_each(&batch, &outcomes), passing);
    let known = known.into_inner().unwrap();
    assert!(known[&1].is_ok() && known[&2].is_ok(), "{known:?}");
    for place in [0, 3] {
        let error = known[&place].clone().unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (SinkErrorKind::Unknown, "no answer within 7s"));
        assert_eq!(error.scope, ErrorScope::Destination);
    }
}

#[tokio::test]
async fn what_could_not_begin_in_time_was_not_sent_and_counts_no_attempt() {
    let server = slow();
    let (sink, clock) = sink_with(&settings(&server, "per_origin = 1"));
    let batch = ["never", "a", "b"].map(to);
    let passing = async {
        server.wait_for(1).await;
        clock.advance(Duration::from_secs(7));
    };
    let (outcomes, ()) = tokio::join!(sink.deliver(&batch), passing);
    let errors: Vec<_> = outcomes.into_iter().map(Result::unwrap_err).collect();
    let kinds: Vec<_> = errors.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [SinkErrorKind::Unknown, SinkErrorKind::Throttled, SinkErrorKind::Throttled]);
    assert!(errors.iter().all(|error| error.scope == ErrorScope::Destination));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_target_that_does_not_finish_connecting_is_unreachable() {
    // The system completes the connection; nobody speaks TLS on it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("url = 'https://{}'\nallow_private = true", silent.local_addr().unwrap());
    let (sink, clock) = sink_with(&url);
    let end = clock.now().mono().saturating_add(Duration::from_secs(5));
    let passing = async {
        while clock.next_deadline() != Some(end) {
            tokio::task::yield_now().await;
        }
        silent.accept().unwrap();
        clock.advance(Duration::from_secs(5));
    };
    let (error, ()) = tokio::join!(failure(&sink, "a"), passing);
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
}

#[tokio::test]
async fn a_call_shorter_than_connecting_is_unreachable_too() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("url = 'https://{}'", silent.local_addr().unwrap());
    let (sink, clock) = sink_with(&format!("{url}\nallow_private = true\nrequest_timeout = '1s'"));
    let end = clock.now().mono().saturating_add(Duration::from_secs(1));
    for probing in [false, true] {
        let end = if probing { end.saturating_add(Duration::from_secs(1)) } else { end };
        let passing = async {
            while clock.next_deadline() != Some(end) {
                tokio::task::yield_now().await;
            }
            silent.accept().unwrap();
            clock.advance_to(end);
        };
        let call =
            async { if probing { sink.probe().await.unwrap_err() } else { failure(&sink, "a").await } };
        let (error, ()) = tokio::join!(call, passing);
        assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
    }
}
