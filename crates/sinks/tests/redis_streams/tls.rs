//! The same by TLS.

use std::path::Path;

use duly_core::SinkErrorKind;
use testkit::{
    servers::redis::{Redis, installed},
    tls::{ClientCertificate, SelfSigned},
};

use crate::{ids, one, sink_with};

/// Lets a server speak TLS with this certificate on a second port, and gives that port. It wants one of clients if the file of their
/// authority is given.
fn by_tls(redis: &Redis, own: &SelfSigned, clients: Option<&Path>) -> u16 {
    let (certificate, key) = (own.certificate(), own.key());
    let port = redis.second_port();
    let words = ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key];
    let authority = clients.map_or(certificate.clone(), |file| file.display().to_string());
    let auth = if clients.is_some() { "yes" } else { "no" };
    let more = ["tls-ca-cert-file", &authority, "tls-auth-clients", auth, "tls-port", &port.to_string()];
    redis.run::<()>(&[&words[..], &more[..]].concat());
    port
}

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let own = SelfSigned::new();
    let (port, certificate) = (by_tls(&redis, &own, None), own.certificate());
    let url = format!("rediss://127.0.0.1:{port}");

    let trusting = sink_with(&url, &format!("ca = '{certificate}'"));
    trusting.probe().await.unwrap();
    one(&trusting, "orders", "a").await.unwrap();
    assert_eq!(ids(&redis, "orders"), ["a"]);

    let error = one(&sink_with(&url, ""), "orders", "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
    let plain = sink_with(&redis.url().replace("redis://", "rediss://"), "request_timeout = '1s'");
    let error = one(&plain, "orders", "c").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this port speaks no TLS: {}", error.detail);
    assert_eq!(ids(&redis, "orders"), ["a"]);
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_ours_gets_it() {
    if !installed() {
        return;
    }
    let (redis, clients) = (Redis::single(), ClientCertificate::new());
    let own = SelfSigned::new();
    let (port, certificate) = (by_tls(&redis, &own, Some(&clients.authority())), own.certificate());
    let with = |scheme: &str, own: &str| {
        sink_with(&format!("{scheme}://127.0.0.1:{port}"), &format!("ca = '{certificate}'\n{own}"))
    };
    let known = with("rediss", &clients.settings());
    known.probe().await.unwrap();
    one(&known, "orders", "a").await.unwrap();
    for own in [String::new(), ClientCertificate::new().settings()] {
        // As for a cluster: who refuses us is no cluster, but that comes later.
        for scheme in ["rediss", "rediss-cluster"] {
            let error = one(&with(scheme, &own), "orders", "b").await.unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{scheme} {own}: {}", error.detail);
        }
    }
    assert_eq!(ids(&redis, "orders"), ["a"]);
}
