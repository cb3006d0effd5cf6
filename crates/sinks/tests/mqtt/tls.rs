//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::servers::mosquitto::{Mosquitto, installed};

use crate::{one, sink_with};

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
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
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
    // One certificate for both ends: each trusts it.
    let broker = Mosquitto::with(&format!(
        "listener SECOND 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\ncafile {certificate}\nrequire_certificate true"
    ));
    let url = format!("mqtts://duly:p%40ss@127.0.0.1:{}", broker.tls_port());
    let ours = format!("ca = '{certificate}'\nclient_cert = '{certificate}'\nclient_key = '{key}'");
    one(&sink_with(&url, &ours), "orders", "a").await.unwrap();
    let error = sink_with(&url, &format!("ca = '{certificate}'")).probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
}
