//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::servers::activemq::{Activemq, installed, shared};

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
