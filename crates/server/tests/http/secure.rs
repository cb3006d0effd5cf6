//! HTTPS, and what may listen where.

use std::{path::Path, sync::Arc};

use duly_server::{
    config::{Config, TlsFiles},
    serve,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::bed::{Bed, SOON};

/// Writes a certificate for localhost and gives what trusts it.
fn certified(folder: &Path) -> (TlsFiles, TlsConnector) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&files.cert, own.cert.pem()).unwrap();
    std::fs::write(&files.key, own.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (files, TlsConnector::from(Arc::new(client)))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_the_server_speaks_https_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (files, connector) = certified(folder.path());
    let bed = Bed::with(|config| config.tls = Some(files)).await;
    let stream = TcpStream::connect(bed.addr()).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let body = r#"{"topic":"a","id":"secret"}"#;
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_string(&mut answer)).await.expect("an answer in time");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // In the clear there is no answer.
    let answer = bed.raw(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", "never").await;
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_a_token_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let open = Config {
        listen: "0.0.0.0:0".parse().unwrap(),
        data: folder.path().join("data"),
        ..Config::default()
    };
    let Err(refused) = serve::start(open.clone()).await else { panic!("it listens without a token") };
    assert!(refused.to_string().contains("duly token"), "{refused}");
    assert!(!folder.path().join("data").exists(), "nothing was touched");
    let running = serve::start(Config { insecure_no_auth: true, ..open }).await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_folder_or_port_is_told_so() {
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let taken = Config { listen: bed.addr(), data: folder.path().join("data"), ..Config::default() };
    let Err(refused) = serve::start(taken).await else { panic!("two on one port") };
    assert!(refused.to_string().contains(&bed.addr().to_string()), "{refused}");
    let data = bed.data().to_owned();
    let Err(refused) =
        serve::start(Config { listen: "127.0.0.1:0".parse().unwrap(), data, ..Config::default() }).await
    else {
        panic!("two on one folder")
    };
    assert!(refused.to_string().contains("data folder"), "{refused}");
}
