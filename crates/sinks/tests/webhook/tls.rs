//! How a target proves who it is.

use std::sync::Arc;

use duly_core::SinkErrorKind;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tempfile::NamedTempFile;
use testkit::http::{HttpServer, Reply};
use tokio_rustls::TlsAcceptor;

use crate::{by_path, failure, one, sink_to};

/// A server whose certificate for `name` is of an authority of its own, and that authority as a file.
fn server_for(name: &str) -> (HttpServer, NamedTempFile) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();

    let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
    let key = PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let server = HttpServer::start_tls(TlsAcceptor::from(Arc::new(config)), |_| Reply::status(200, "safe"));
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
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
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
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
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
}
