//! How a target proves who it is.

use duly_core::{ErrorScope, SinkErrorKind};
use tempfile::NamedTempFile;
use testkit::{
    http::{HttpServer, Reply},
    tls::ClientCertificate,
};

use crate::{by_path, failure, one, sink_to};

/// A server whose certificate for `name` is of an authority of its own, and that authority as a file.
fn server_for(name: &str) -> (HttpServer, NamedTempFile) {
    let (tls, authority) = testkit::tls::acceptor(&[name], &[]);
    let server = HttpServer::start_tls(tls, |_| Reply::status(200, "safe"));
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    (server, file)
}

#[tokio::test]
async fn a_target_of_a_named_authority_is_trusted() {
    let (server, ca) = server_for("127.0.0.1");
    let sink = sink_to(&server, &format!("ca = '{}'", ca.path().display()));
    sink.probe().await.unwrap();
    assert_eq!(one(&sink, "a").await.unwrap(), "200 safe");
}

#[tokio::test]
async fn a_target_that_cannot_prove_itself_is_misconfigured_and_sees_no_request() {
    let (unknown, _) = server_for("127.0.0.1");
    let (other, ca) = server_for("other.example");
    for (server, settings) in [(&unknown, String::new()), (&other, format!("ca = '{}'", ca.path().display()))]
    {
        let sink = sink_to(server, &settings);
        let error = failure(&sink, "a").await;
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Misconfigured, ErrorScope::Target));
        assert!(error.detail.contains("certificate"), "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
        assert_eq!(server.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_target_without_tls_is_unreachable_by_https() {
    let plain = by_path();
    let (sink, _) = crate::sink_with(&format!("url = 'https://{}'\nallow_private = true", plain.addr()));
    let error = failure(&sink, "a").await;
    assert_eq!(
        (error.kind, error.scope),
        (SinkErrorKind::Unreachable, ErrorScope::Target),
        "{}",
        error.detail
    );
}

/// A server for those alone who show this certificate, which speaks one of `protocols`; and its authority as a file.
fn server_of(clients: &ClientCertificate, protocols: &[&str]) -> (HttpServer, NamedTempFile) {
    let (tls, authority) = testkit::tls::acceptor_for(&["127.0.0.1"], protocols, &clients.authority());
    let server = HttpServer::start_tls(tls, |_| Reply::status(200, "safe"));
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    (server, file)
}

#[tokio::test]
async fn a_target_that_wants_a_certificate_of_ours_gets_it() {
    for protocols in [&["http/1.1"][..], &["h2"]] {
        let clients = ClientCertificate::new();
        let (server, ca) = server_of(&clients, protocols);
        let with = |own: &str| sink_to(&server, &format!("ca = '{}'\n{own}", ca.path().display()));
        let known = with(&clients.settings());
        known.probe().await.unwrap();
        assert_eq!(one(&known, "a").await.unwrap(), "200 safe");
        for own in [String::new(), ClientCertificate::new().settings()] {
            let sink = with(&own);
            assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
            let error = failure(&sink, "a").await;
            let found = (error.kind, error.scope);
            assert_eq!(found, (SinkErrorKind::Misconfigured, ErrorScope::Target), "{own}: {}", error.detail);
        }
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn our_certificate_is_shown_to_no_url_that_a_message_names() {
    for protocols in [&["http/1.1"][..], &["h2"]] {
        let clients = ClientCertificate::new();
        let (server, ca) = server_of(&clients, protocols);
        let settings =
            format!("ca = '{}'\nallow_urls = ['https://*:*']\n{}", ca.path().display(), clients.settings());
        let sink = sink_to(&server, &settings);
        // A connection stands that would do; the address is the very same.
        one(&sink, "a").await.unwrap();
        let error = failure(&sink, &format!("{}/a", server.url())).await;
        assert_eq!(error.kind, SinkErrorKind::Denied, "{}", error.detail);
        one(&sink, "a").await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }
}
