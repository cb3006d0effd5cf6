//! Names that mean something else the second time they are asked for.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly::ManualClock;
use duly_core::{Delivery, Sink, SinkErrorKind, StoredMessage, Timestamp};
use testkit::http::{HttpServer, Reply};

use crate::{
    WebhookConfig,
    webhook::{WebhookSink, connect::Resolve, settings::Settings},
};

/// Answers one after the other, and the last one for ever.
struct Script {
    answers: Vec<Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl Script {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let read = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self { answers: answers.iter().map(read).collect(), lookups: AtomicUsize::new(0) })
    }
}

impl Resolve for Script {
    fn resolve(&self, _: &str) -> std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let turn = self.lookups.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        let answer = self.answers[turn].clone();
        Box::pin(async move { Ok(answer) })
    }
}

fn sink(config: &str, resolver: Arc<Script>) -> WebhookSink {
    let config: WebhookConfig = toml::from_str(config).unwrap();
    WebhookSink::with_resolver(Settings::read(&config).unwrap(), Arc::new(ManualClock::new()), resolver)
        .unwrap()
}

fn to(topic: &str) -> Vec<Delivery> {
    let (id, sink) = ("m".parse().unwrap(), "hooks".parse().unwrap());
    let message = StoredMessage::new(id, sink, topic.parse().unwrap(), Timestamp::from_millis(1));
    vec![Delivery::new(message, 1)]
}

#[tokio::test]
async fn a_name_that_turns_to_a_private_address_is_never_connected_to() {
    let server = HttpServer::start(|_| Reply::status(200, ""));
    let port = server.addr().port();
    // Good for whoever looks first, loopback for whoever resolves again to connect.
    let resolver = Script::new(&[&["203.0.113.7"], &["127.0.0.1"]]);
    let config = format!("url = 'http://rebind.example:{port}'\nallow_private = ['203.0.113.0/24']");
    let sink = sink(&config, resolver.clone());
    let error = |sink: &WebhookSink| {
        let connect = sink.named.connector.clone();
        let uri = format!("http://rebind.example:{port}/").parse().unwrap();
        async move { tower::ServiceExt::oneshot(connect, uri).await.err().map(|error| error.kind()) }
    };
    // The first connection goes to the checked address, or nowhere: the second answer is not even asked for.
    tokio::select! {
        biased;
        _ = error(&sink) => {}
        () = std::future::ready(()) => {}
    }
    assert_eq!(resolver.lookups.load(Ordering::SeqCst), 1, "resolved once per connection");
    // The next connection gets the second answer, and that is refused as such.
    let outcome = sink.deliver(&to("a")).await.remove(0).unwrap_err();
    assert_eq!(outcome.kind, SinkErrorKind::Misconfigured);
    assert!(
        outcome.detail.contains("127.0.0.1") && outcome.detail.contains("loopback"),
        "{}",
        outcome.detail
    );
    assert_eq!((server.connections(), server.requests().len()), (0, 0));
}

#[tokio::test]
async fn of_several_addresses_only_the_checked_ones_are_tried() {
    let server = HttpServer::start(|_| Reply::status(200, ""));
    let port = server.addr().port();
    let resolver = Script::new(&[&["10.0.0.1", "::1", "127.0.0.1"]]);
    let config = format!("url = 'http://mixed.example:{port}'\nallow_private = ['127.0.0.1/32']");
    let outcome = sink(&config, resolver.clone()).deliver(&to("a")).await.remove(0);
    assert_eq!(outcome, Ok("200".into()));
    assert_eq!(server.requests()[0].header("host"), Some(format!("mixed.example:{port}")));
    assert_eq!(resolver.lookups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_private_address_is_the_operators_fault_in_the_base_and_the_messages_in_its_own_url() {
    let resolver = Script::new(&[&["192.168.1.1"]]);
    let config = "url = 'https://inside.example'\nallow_urls = ['https://*', 'http://*']";
    let sink = sink(config, resolver);
    for (topic, kind) in [
        ("a", SinkErrorKind::Misconfigured),
        ("https://inside.example/a", SinkErrorKind::Refused),
        ("http://127.0.0.1/", SinkErrorKind::Refused),
        ("http://2130706433/", SinkErrorKind::Refused),
        ("http://0x7f.1/", SinkErrorKind::Refused),
        ("http://0177.0.0.1/", SinkErrorKind::Refused),
        ("http://[::1]/", SinkErrorKind::Refused),
        ("http://[::ffff:127.0.0.1]/", SinkErrorKind::Refused),
        ("http://[::ffff:7f00:1]/", SinkErrorKind::Refused),
        ("http://[64:ff9b::a00:1]/", SinkErrorKind::Refused),
        ("http://①②⑦.⓪.⓪.①/", SinkErrorKind::Refused),
        ("http://169.254.169.254/latest/meta-data", SinkErrorKind::Refused),
        ("http://0/", SinkErrorKind::Refused),
    ] {
        let error = sink.deliver(&to(topic)).await.remove(0).unwrap_err();
        assert_eq!(error.kind, kind, "{topic}: {}", error.detail);
        assert!(error.detail.contains("allow_private"), "{topic}: {}", error.detail);
    }
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
}

/// Each host has addresses of its own.
struct ByHost(&'static [(&'static str, &'static str)]);

impl Resolve for ByHost {
    fn resolve(&self, host: &str) -> std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let found = self.0.iter().filter(|(name, _)| *name == host).map(|(_, ip)| ip.parse().unwrap());
        let answer = found.collect();
        Box::pin(async move { Ok(answer) })
    }
}

/// An HTTP/2 connection could carry requests for every name of its certificate: here it carries those for the name that
/// it was made for, to the address that was checked.
#[tokio::test]
async fn a_kept_connection_serves_no_name_but_its_own() {
    let (tls, authority) = testkit::tls::acceptor(&["good.example", "inside.example"], &["h2"]);
    let server = HttpServer::start_tls(tls, |_| Reply::status(200, ""));
    let port = server.addr().port();
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), authority).unwrap();
    let config: WebhookConfig = toml::from_str(&format!(
        "allow_urls = ['https://*.example:*']\nallow_private = ['127.0.0.1/32']\nca = '{}'",
        ca.path().display()
    ))
    .unwrap();
    let names = ByHost(&[("good.example", "127.0.0.1"), ("inside.example", "127.0.0.2")]);
    let clock = Arc::new(ManualClock::new());
    let sink = WebhookSink::with_resolver(Settings::read(&config).unwrap(), clock, Arc::new(names)).unwrap();
    let good = to(&format!("https://good.example:{port}/a"));
    assert!(sink.deliver(&good).await[0].is_ok());
    let inside = to(&format!("https://inside.example:{port}/a"));
    let error = sink.deliver(&inside).await.remove(0).unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused, "{}", error.detail);
    assert!(sink.deliver(&good).await[0].is_ok());
    let seen =
        (server.connections(), server.requests().len(), sink.named.connector.open(), sink.origins.len());
    assert_eq!(seen, (1, 2, 1, 0), "connections, requests, kept, origins");
    assert!(server.requests().iter().all(|request| request.version == http::Version::HTTP_2));
}

/// The address that was checked when the connection was made is the one that it has: a name that means another one later
/// changes nothing while the connection is kept, and is checked when the next one is made.
#[tokio::test]
async fn a_name_that_changes_does_not_move_a_kept_connection() {
    let server = HttpServer::start(|_| Reply::status(200, ""));
    let port = server.addr().port();
    let resolver = Script::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let config = format!("url = 'http://rebind.example:{port}'\nallow_private = ['127.0.0.1/32']");
    let sink = sink(&config, resolver.clone());
    for _ in 0..3 {
        assert!(sink.deliver(&to("a")).await[0].is_ok());
    }
    assert_eq!((resolver.lookups.load(Ordering::SeqCst), server.connections()), (1, 1));
    server.stop();
    server.again();
    let error = loop {
        // The end of the old connection may not have been noticed yet.
        let error = sink.deliver(&to("a")).await.remove(0).unwrap_err();
        if error.kind != SinkErrorKind::Unknown {
            break error;
        }
    };
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
}

#[tokio::test]
async fn a_name_without_an_address_is_unreachable() {
    let sink = sink("url = 'http://gone.example'", Script::new(&[&[]]));
    let error = sink.deliver(&to("a")).await.remove(0).unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
}
