//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::{
    servers::activemq::{Activemq, installed, shared},
    tls::ClientCertificate,
};

use crate::{one, sink_with};

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let (broker, certificate) = Activemq::secure();
    let url = format!("stomp+ssl://duly:p%40ss@127.0.0.1:{}", broker.tls_port());
    let sink = sink_with(&url, &format!("ca = '{}'\nrequest_timeout = '60s'", certificate.display()));
    sink.probe().await.unwrap();
    one(&sink, "orders.tls", "a").await.unwrap();
    let error = sink_with(&url, "request_timeout = '60s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let url = format!("stomp+ssl://127.0.0.1:{}", shared().port());
    let error = sink_with(&url, "request_timeout = '2s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this one speaks no TLS: {}", error.detail);
}

#[tokio::test]
async fn a_broker_that_wants_a_certificate_of_ours_gets_it() {
    if !installed() {
        return;
    }
    let clients = ClientCertificate::new();
    let (broker, certificate) = Activemq::mutual(&clients.authority());
    let url = format!("stomp+ssl://duly:p%40ss@127.0.0.1:{}", broker.tls_port());
    let with = |own: &str| {
        sink_with(&url, &format!("ca = '{}'\nrequest_timeout = '60s'\n{own}", certificate.display()))
    };
    one(&with(&clients.settings()), "orders.mutual", "a").await.unwrap();
    for own in [String::new(), ClientCertificate::new().settings()] {
        let error = with(&own).probe().await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{own}: {}", error.detail);
    }
}
