//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::servers::nats::{Nats, installed};

use crate::sink_with;

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
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        (file(&format!("{name}.pem"), made.cert.pem()), file(&format!("{name}.key"), key))
    };
    let (server, known, stranger) = (pair("server"), pair("known"), pair("stranger"));
    let nats = Nats::with(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
        server.0, server.1, known.0
    ));
    let url = format!("tls://127.0.0.1:{}", nats.port());
    for mode in ["jetstream", "core"] {
        let with = |own: Option<&(String, String)>| {
            let own = own
                .map_or(String::new(), |(cert, key)| format!("client_cert = '{cert}'\nclient_key = '{key}'"));
            sink_with(&url, &format!("mode = '{mode}'\nca = '{}'\n{own}", server.0))
        };
        with(Some(&known)).probe().await.unwrap();
        for own in [None, Some(&stranger)] {
            let error = with(own).probe().await.unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{mode}: {}", error.detail);
        }
    }
}
