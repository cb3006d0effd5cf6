//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::{
    servers::mosquitto::{Mosquitto, installed},
    tls::SelfSigned,
};

use crate::{one, sink_with};

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let own = SelfSigned::new();
    let (certificate, key) = (own.certificate(), own.key());
    let broker =
        Mosquitto::with(&format!("listener SECOND 127.0.0.1\ncertfile {certificate}\nkeyfile {key}"));
    let url = format!("mqtts://duly:p%40ss@127.0.0.1:{}", broker.tls_port());

    let sink = sink_with(&url, &format!("ca = '{certificate}'"));
    sink.probe().await.unwrap();
    one(&sink, "orders", "a").await.unwrap();
    let error = sink_with(&url, "").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let url = format!("mqtts://127.0.0.1:{}", broker.port());
    let error = sink_with(&url, "request_timeout = '2s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this port speaks no TLS: {}", error.detail);
}

#[tokio::test]
async fn a_broker_that_wants_a_certificate_of_ours_gets_it() {
    if !installed() {
        return;
    }
    let own = SelfSigned::new();
    let (certificate, key) = (own.certificate(), own.key());
    // One certificate for both ends: each trusts it.
    let broker = Mosquitto::with(&format!(
        "listener SECOND 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\ncafile {certificate}\nrequire_certificate true"
    ));
    let url = format!("mqtts://duly:p%40ss@127.0.0.1:{}", broker.tls_port());
    let ours = format!("ca = '{certificate}'\n{}", own.settings());
    one(&sink_with(&url, &ours), "orders", "a").await.unwrap();
    let error = sink_with(&url, &format!("ca = '{certificate}'")).probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
}
