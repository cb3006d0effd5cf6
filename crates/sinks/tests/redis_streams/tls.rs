//! The same by TLS.

use std::path::Path;

use duly_core::SinkErrorKind;
use testkit::{
    servers::redis::{Redis, installed},
    tls::ClientCertificate,
};

use crate::{ids, one, sink_with};

/// Lets a server speak TLS on a second port, and gives that port and the file with its certificate. It wants one of clients if the file
/// of their authority is given.
fn by_tls(redis: &Redis, clients: Option<&Path>) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = redis.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
    let port = redis.second_port();
    let words = ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key];
    let authority = clients.map_or(certificate.clone(), |file| file.display().to_string());
    let auth = if clients.is_some() { "yes" } else { "no" };
    let more = ["tls-ca-cert-file", &authority, "tls-auth-clients", auth, "tls-port", &port.to_string()];
    redis.run::<()>(&[&words[..], &more[..]].concat());
    (port, certificate)
}

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (port, certificate) = by_tls(&redis, None);
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
    let (port, certificate) = by_tls(&redis, Some(&clients.authority()));
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
