//! The same by TLS.

use std::time::Duration;

use duly_core::SinkErrorKind;
use testkit::{
    servers::{
        rabbitmq::{Rabbitmq, installed, shared},
        wait_until,
    },
    tls::{ClientCertificate, SelfSigned},
};

use crate::sink_with;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let own = SelfSigned::new();
    let (certificate, key) = (own.certificate(), own.key());
    let clients = ClientCertificate::new();
    // A port that the system gives is free for a moment, which is all that can be had beside the server's own.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {}\n\
         ssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\nssl_options.verify = verify_peer",
        clients.authority().display()
    );
    let _server = tokio::task::block_in_place(|| {
        let server = Rabbitmq::with(&config);
        // It listens for TLS a moment after it is there for everybody else.
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("RabbitMQ listens for TLS", Duration::from_secs(60), listens);
        server
    });
    let url = format!("amqps://guest:guest@127.0.0.1:{port}");

    sink_with(&url, &format!("ca = '{certificate}'")).probe().await.unwrap();
    let error = sink_with(&url, "").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let known = format!("ca = '{certificate}'\n{}", clients.settings());
    sink_with(&url, &known).probe().await.unwrap();
    // The server's own certificate is from no authority that the server trusts: what is shown is looked at.
    let unknown = format!("ca = '{certificate}'\n{}", own.settings());
    let error = sink_with(&url, &unknown).probe().await.unwrap_err();
    assert_ne!(error.kind, SinkErrorKind::Unknown, "{}", error.detail);

    let plain = shared().url().replace("amqp://", "amqps://");
    let error = sink_with(&plain, "request_timeout = '2s'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "this one speaks no TLS: {}", error.detail);
}
