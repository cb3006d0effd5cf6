//! HTTP/2, where the target offers it.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use duly_core::{ErrorScope, Sink, SinkErrorKind};
use http::Version;
use tempfile::NamedTempFile;
use testkit::http::{HttpServer, Reply};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{failure, one, sink_with, to};

/// For this machine, with these protocols.
fn acceptor(protocols: &[&str]) -> (TlsAcceptor, NamedTempFile) {
    let (tls, authority) = testkit::tls::acceptor(&["127.0.0.1"], protocols);
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    (tls, file)
}

fn settings(addr: SocketAddr, ca: &NamedTempFile) -> String {
    format!("url = 'https://{addr}'\nallow_private = true\nca = '{}'", ca.path().display())
}

#[tokio::test]
async fn all_requests_of_a_call_share_one_connection() {
    let (tls, ca) = acceptor(&["h2", "http/1.1"]);
    let server = HttpServer::start_tls(tls, |_| Reply::status(200, "taken"));
    let (sink, _) = sink_with(&settings(server.addr(), &ca));
    let batch: Vec<_> = (0..100).map(|n| to(&format!("path/{n}"))).collect();
    for outcome in sink.deliver(&batch).await {
        assert_eq!(outcome.unwrap(), "200 taken");
    }
    assert_eq!(server.connections(), 1);
    let requests = server.requests();
    assert!(requests.len() == 100 && requests.iter().all(|request| request.version == Version::HTTP_2));
    assert_eq!(requests[0].header("webhook-id").as_deref(), Some("order-42"));
}

#[tokio::test]
async fn a_target_without_http2_gets_http1() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (tls, ca) = acceptor(protocols);
        let server = HttpServer::start_tls(tls, |_| Reply::status(200, ""));
        let (sink, _) = sink_with(&settings(server.addr(), &ca));
        let outcomes = sink.deliver(&["a", "b", "c"].map(to)).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert!(server.requests().iter().all(|request| request.version == Version::HTTP_11));
    }
}

/// The connection may be dead without anybody having said so: with HTTP/2, all that comes later would die on it.
#[tokio::test]
async fn after_a_request_without_an_answer_the_next_has_another_connection() {
    let (tls, ca) = acceptor(&["h2"]);
    let server = HttpServer::start_tls(tls, |request| match request.uri.path() {
        "/never" => Reply::Never,
        _ => Reply::status(200, ""),
    });
    let (sink, clock) = sink_with(&settings(server.addr(), &ca));
    let passing = async {
        server.wait_for(1).await;
        clock.advance(Duration::from_secs(7));
    };
    let (error, ()) = tokio::join!(failure(&sink, "never"), passing);
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unknown, ErrorScope::Destination));
    one(&sink, "a").await.unwrap();
    one(&sink, "b").await.unwrap();
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [1, 2, 2]);
}

/// Requests that are under way keep the state of their origin, also that it is connected.
#[tokio::test]
async fn after_a_request_without_an_answer_one_connection_is_made_for_all_that_follow() {
    let (tls, ca) = acceptor(&["h2"]);
    let server = HttpServer::start_tls(tls, |request| match request.uri.path() {
        "/first" | "/second" => Reply::Never,
        _ => Reply::status(200, ""),
    });
    let (sink, clock) = sink_with(&settings(server.addr(), &ca));
    let mut first = pin!(failure(&sink, "first"));
    tokio::select! {
        error = &mut first => panic!("{error}"),
        _ = server.wait_for(1) => clock.advance(Duration::from_secs(4)),
    }
    let mut second = pin!(failure(&sink, "second"));
    tokio::select! {
        error = &mut second => panic!("{error}"),
        _ = server.wait_for(2) => clock.advance(Duration::from_secs(3)),
    }
    assert_eq!(first.await.kind, SinkErrorKind::Unknown);
    let batch: Vec<_> = (0..64).map(|n| to(&format!("path/{n}"))).collect();
    tokio::select! {
        error = &mut second => panic!("{error}"),
        outcomes = sink.deliver(&batch) => assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}"),
    }
    assert_eq!(server.connections(), 2);
}

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: u8 = 1;
const PREFACE_LEN: usize = 24;

/// RST_STREAM of the first stream.
fn reset(reason: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, reason]
}

/// GOAWAY without an error: what came after `last` was not processed.
fn go_away(last: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0]
}

/// Takes one request, and answers it with these frames.
async fn answer_one(listener: &TcpListener, tls: &TlsAcceptor, frames: &[u8]) -> TlsStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = tls.accept(stream).await.unwrap();
    stream.write_all(&SETTINGS).await.unwrap();
    stream.read_exact(&mut [0; PREFACE_LEN]).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        stream.read_exact(&mut vec![0; len]).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    stream.write_all(frames).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

async fn outcome_of(frames: Vec<u8>, hangs_up: bool) -> (SinkErrorKind, ErrorScope, String) {
    let (tls, ca) = acceptor(&["h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (sink, _): (Arc<dyn Sink>, _) = sink_with(&settings(listener.local_addr().unwrap(), &ca));
    let peer = async {
        let stream = answer_one(&listener, &tls, &frames).await;
        if hangs_up {
            drop(stream);
            return std::future::pending().await;
        }
        let _open = stream;
        std::future::pending::<()>().await;
    };
    let error = tokio::select! { error = failure(&sink, "a") => error, () = peer => unreachable!() };
    (error.kind, error.scope, error.detail)
}

#[tokio::test]
async fn a_stream_that_was_refused_was_not_delivered_and_costs_no_attempt() {
    const REFUSED_STREAM: u8 = 7;
    for frames in [reset(REFUSED_STREAM), go_away(0)] {
        let (kind, scope, detail) = outcome_of(frames, false).await;
        assert_eq!((kind, scope), (SinkErrorKind::Throttled, ErrorScope::Destination), "{detail}");
        assert!(detail.contains("did not begin"), "{detail}");
    }
}

#[tokio::test]
async fn a_stream_that_broke_off_may_have_been_delivered() {
    const INTERNAL_ERROR: u8 = 2;
    for (frames, hangs_up) in [(reset(INTERNAL_ERROR), false), (go_away(1), true), (Vec::new(), true)] {
        let (kind, scope, detail) = outcome_of(frames, hangs_up).await;
        assert_eq!((kind, scope), (SinkErrorKind::Unknown, ErrorScope::Destination), "{detail}");
    }
}
