//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::{
    servers::nats::{Nats, installed},
    tls::SelfSigned,
};

use crate::sink_with;

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let own = SelfSigned::new();
    let (certificate, key) = (own.certificate(), own.key());
    let nats = Nats::with(&format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}"));
    let url = format!("tls://127.0.0.1:{}", nats.port());

    sink_with(&url, &format!("ca = '{certificate}'")).probe().await.unwrap();
    let error = sink_with(&url, "").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let plain = Nats::single();
    let url = format!("tls://127.0.0.1:{}", plain.port());
    let error = sink_with(&url, "request_timeout = '2s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this one speaks no TLS: {}", error.detail);
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_one() {
    if !installed() {
        return;
    }
    let (server, known, stranger) = (SelfSigned::new(), SelfSigned::new(), SelfSigned::new());
    let nats = Nats::with(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        server.certificate(),
        server.key(),
        known.certificate()
    ));
    let url = format!("tls://127.0.0.1:{}", nats.port());
    for mode in ["jetstream", "core"] {
        let with = |own: Option<&SelfSigned>| {
            let own = own.map(SelfSigned::settings).unwrap_or_default();
            sink_with(&url, &format!("mode = '{mode}'\nca = '{}'\n{own}", server.certificate()))
        };
        with(Some(&known)).probe().await.unwrap();
        for own in [None, Some(&stranger)] {
            let error = with(own).probe().await.unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{mode}: {}", error.detail);
        }
    }
}
