//! What the configurations of all sinks have in common, each by the same table: files for TLS, and secrets.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::path::Path;

use duly_sinks::SinkConfig;
use testkit::tls::ClientCertificate;

/// One sink: settings that reach its target without TLS and by TLS, and settings that hold the word `hidden` as a secret.
struct Sink {
    kind: &'static str,
    plain: &'static str,
    tls: &'static str,
    secret: &'static str,
}

const SINKS: [Sink; 8] = [
    Sink {
        kind: "webhook",
        plain: "url = 'http://h'",
        tls: "url = 'https://h'",
        secret: "url = 'https://h'\nsecret = 'hidden'",
    },
    Sink {
        kind: "redis_streams",
        plain: "url = 'redis://h'",
        tls: "url = 'rediss://h'",
        secret: "url = 'redis://me:hidden@h'",
    },
    Sink {
        kind: "rabbitmq",
        plain: "url = 'amqp://h'",
        tls: "url = 'amqps://h'",
        secret: "url = 'amqp://me:hidden@h'",
    },
    Sink {
        kind: "nats",
        plain: "url = 'nats://h'",
        tls: "url = 'tls://h'",
        secret: "url = 'nats://h'\ntoken = 'hidden'",
    },
    Sink {
        kind: "kafka",
        plain: "brokers = 'h:1'",
        tls: "brokers = 'h:1'\ntls = true",
        secret: "brokers = 'h:1'\nuser = 'me'\npassword = 'hidden'",
    },
    Sink {
        kind: "rocketmq",
        plain: "namesrv = 'h:1'",
        tls: "namesrv = 'h:1'\ntls = true",
        secret: "namesrv = 'h:1'\naccess_key = 'me'\nsecret_key = 'hidden'",
    },
    Sink {
        kind: "activemq",
        plain: "url = 'stomp://h'",
        tls: "url = 'stomp+ssl://h'",
        secret: "url = 'stomp://me:hidden@h'",
    },
    Sink {
        kind: "mqtt",
        plain: "url = 'mqtt://h'",
        tls: "url = 'mqtts://h'",
        secret: "url = 'mqtt://me:hidden@h'",
    },
];

impl Sink {
    fn read(&self, settings: &str) -> SinkConfig {
        toml::from_str(&format!("kind = '{}'\n{settings}", self.kind)).unwrap()
    }

    /// The settings that are at fault.
    fn faults(&self, settings: &str, more: &str) -> Vec<String> {
        let faults = self.read(&format!("{settings}\n{more}")).check();
        faults.into_iter().map(|fault| fault.path).collect()
    }

    /// A webhook also goes to addresses that messages name, which may be reached by TLS.
    fn has_one_target(&self) -> bool {
        self.kind != "webhook"
    }
}

/// All sinks that this build reaches by TLS.
fn by_tls() -> impl Iterator<Item = &'static Sink> {
    SINKS.iter().filter(|sink| sink.kind != "kafka" || cfg!(feature = "kafka-tls"))
}

fn file(setting: &str, path: &Path) -> String {
    format!("{setting} = '{}'", path.display())
}

#[test]
fn every_sink_is_in_the_table() {
    let error = toml::from_str::<SinkConfig>("kind = 'carrier-pigeon'").unwrap_err().to_string();
    let words: Vec<_> =
        error.split('`').skip(1).step_by(2).filter(|word| *word != "carrier-pigeon").collect();
    assert_eq!(words, SINKS.map(|sink| sink.kind), "{error}");
}

#[test]
fn an_authority_without_tls_is_told_to_be_of_no_use() {
    let clients = ClientCertificate::new();
    let ca = file("ca", &clients.authority());
    for sink in by_tls() {
        assert_eq!(sink.faults(sink.tls, &ca), [""; 0], "{}", sink.kind);
        let expected: &[&str] = if sink.has_one_target() { &["ca"] } else { &[] };
        assert_eq!(sink.faults(sink.plain, &ca), expected, "{}", sink.kind);
    }
}

#[test]
fn a_file_of_an_authority_that_is_not_there_is_a_fault() {
    for sink in by_tls() {
        assert_eq!(sink.faults(sink.tls, "ca = '/no/such.pem'"), ["ca"], "{}", sink.kind);
    }
}

#[test]
fn a_client_certificate_comes_with_its_key_and_by_tls() {
    let (clients, others) = (ClientCertificate::new(), ClientCertificate::new());
    let (made, other) = (clients.settings(), others.settings());
    let (cert, key) = made.split_once('\n').unwrap();
    let (_, wrong) = other.split_once('\n').unwrap();
    for sink in by_tls() {
        let kind = sink.kind;
        assert_eq!(sink.faults(sink.tls, &made), [""; 0], "{kind}");
        assert_eq!(sink.faults(sink.tls, cert), ["client_key"], "{kind}");
        assert_eq!(sink.faults(sink.tls, key), ["client_cert"], "{kind}");
        assert_eq!(sink.faults(sink.tls, &format!("{cert}\n{wrong}")), ["client_key"], "{kind}: of another");
        assert_eq!(sink.faults(sink.plain, &made), ["client_cert", "client_key"], "{kind}");
    }
}

#[test]
fn secrets_are_not_shown() {
    for sink in &SINKS {
        let config = sink.read(sink.secret);
        assert_eq!((config.kind(), sink.faults(sink.secret, "")), (sink.kind, Vec::new()));
        assert!(!format!("{config:?}").contains("hidden"), "{config:?}");
    }
}

/// The words about a fault do not repeat an address, which may hold a password.
#[test]
fn an_address_that_is_not_understood_is_not_shown() {
    for sink in SINKS.iter().filter(|sink| sink.secret.contains("me:hidden@h")) {
        let wrong = sink.read(&sink.secret.replace("@h", "@h:port")).check();
        assert_eq!(wrong.len(), 1, "{}: {wrong:?}", sink.kind);
        assert!(!format!("{wrong:?}").contains("hidden"), "{wrong:?}");
    }
}
