//! HTTPS, and what may listen where.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

use duly_server::{
    auth::{Role, Token, Tokens},
    config::{Config, StoreSetup, TlsFiles},
    serve,
};
use http::Method;
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
        store: StoreSetup::in_folder(folder.path().join("data")),
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
    let taken = Config {
        listen: bed.addr(),
        store: StoreSetup::in_folder(folder.path().join("data")),
        ..Config::default()
    };
    let Err(refused) = serve::start(taken).await else { panic!("two on one port") };
    assert!(refused.to_string().contains(&bed.addr().to_string()), "{refused}");
    let data = bed.data().to_owned();
    let Err(refused) = serve::start(Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: StoreSetup::in_folder(data),
        ..Config::default()
    })
    .await
    else {
        panic!("two on one folder")
    };
    assert!(refused.to_string().contains("data folder"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_before_a_server_without_tokens_is_warned_of() {
    let warnings = async |bed: &Bed| bed.get("/readyz").await.json()["warnings"].clone();
    let bed = Bed::new().await;
    assert!(warnings(&bed).await.is_null());
    bed.call_with(Method::GET, "/v1/stats", "", &[("x-forwarded-for", "10.0.0.1")]).await;
    let reported = warnings(&bed).await;
    assert!(reported[0].as_str().is_some_and(|words| words.contains("auth.tokens")), "{reported}");
    // With tokens, whoever reaches the proxy still needs one.
    let bed = Bed::with(|config| {
        config.tokens = Tokens::new(vec![Token::new("root", "rule-me", &[Role::Admin], &[])]);
    })
    .await;
    bed.call_with(Method::GET, "/livez", "", &[("forwarded", "for=10.0.0.1")]).await;
    assert!(warnings(&bed).await.is_null());
}

/// A connection to this address that has begun to be answered, and how the answer begins.
async fn connection(to: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    // One that is refused may be reset before its answer is read.
    let _ = tokio::time::timeout(SOON, stream.read_exact(&mut first)).await.expect("an answer in time");
    (stream, String::from_utf8_lossy(&first).into_owned())
}

/// An address of this machine that is not loopback, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_does_not_take_the_connections_of_all() {
    let bed = Bed::with(|config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.insecure_no_auth = true;
        config.http.connections_per_address = 2;
    })
    .await;
    let local = SocketAddr::from(([127, 0, 0, 1], bed.addr().port()));
    // A proxy on this machine is many clients: loopback is not counted as one address.
    let mut held = Vec::new();
    for _ in 0..4 {
        let (stream, first) = connection(local).await;
        assert_eq!(first, "HTTP/1.1 200");
        held.push(stream);
    }
    let Some(own) = own_address() else {
        return testkit::servers::skip("connections per address", "this machine has no address but loopback");
    };
    let far = SocketAddr::from((own, bed.addr().port()));
    let two = [connection(far).await, connection(far).await];
    assert!(two.iter().all(|(_, first)| first == "HTTP/1.1 200"));
    let mut refused = String::new();
    let mut third = TcpStream::connect(far).await.unwrap();
    let _ = tokio::time::timeout(SOON, third.read_to_string(&mut refused)).await.expect("an answer in time");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("connections_per_address"), "{refused}");
    assert_eq!(connection(local).await.1, "HTTP/1.1 200", "another address");
    // A place is free again when its connection has ended.
    drop(two);
    let again = async { while connection(far).await.1 != "HTTP/1.1 200" {} };
    tokio::time::timeout(SOON, again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_folder_and_its_files_are_for_its_user_alone() {
    let bed = Bed::new().await;
    bed.send(serde_json::json!({"topic": "a", "delay": "1h"})).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let has_modes = |folder: &Path, want: u32| {
        assert_eq!(mode(folder), want, "{}", folder.display());
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty());
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
    };
    has_modes(bed.data(), 0o700);
    let copies = tempfile::tempdir().unwrap();
    // A folder that was prepared keeps its mode, such as one for a group that collects backups.
    let prepared = copies.path().join("prepared");
    std::fs::create_dir(&prepared).unwrap();
    std::fs::set_permissions(&prepared, PermissionsExt::from_mode(0o2750)).unwrap();
    duly_stores::embedded::backup(bed.data(), &prepared).unwrap();
    has_modes(&prepared, 0o2750);
    // One that is made is private; those above it are as mkdir makes them.
    let usual = copies.path().join("usual");
    std::fs::create_dir(&usual).unwrap();
    let above = copies.path().join("above");
    duly_stores::embedded::backup(bed.data(), &above.join("copy")).unwrap();
    has_modes(&above.join("copy"), 0o700);
    assert_eq!(mode(&above), mode(&usual));
}
