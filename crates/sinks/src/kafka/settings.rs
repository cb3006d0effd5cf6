//! The configuration of a sink into Kafka, as used.

use std::time::Duration;

use duly_core::{ErrorCode, Invalid};
use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

use super::{
    config::{KafkaConfig, Mechanism},
    context::DEBUG,
};
use crate::tls::{authorities, check_openssl_identity};

/// One call is given at least this: the library looks for what is out of time about once a second.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The most that waits in the library, of calls that were given up and of those that were not. What comes then is turned away.
const WAITING_MESSAGES: &str = "20000";
const WAITING_KIB: &str = "131072";
/// What is larger is a fault here; what is smaller, the broker decides about.
const MESSAGE_BYTES: &str = "67108864";
/// How long an unknown topic may only be new: metadata spreads within this time.
const METADATA_SPREAD_MAX: Duration = Duration::from_secs(2);
/// The library sends a batch again so many times, after 100, 200 and 400 ms: enough for a leader that moves. Then it passes
/// on what the broker said, such as that there are too few replicas; without an end it would only say that time ran out.
const RETRIES: &str = "3";

/// Whether what the library itself sends again is kept once.
pub(super) const IDEMPOTENCE: &str = "enable.idempotence";

/// Whether this build can speak TLS, and SCRAM with it.
const HAS_TLS: bool = cfg!(feature = "kafka-tls");
const NO_TLS: &str = "this build speaks no TLS to Kafka: build with --features kafka-tls";

/// Everything set, everything checked.
#[derive(Clone)]
pub(super) struct Settings {
    /// What the library is told.
    pub(super) client: ClientConfig,
    /// The same, for records that must be alone in their batch.
    pub(super) alone: ClientConfig,
    pub(super) timeout: Duration,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &KafkaConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault =
            |path: &str, detail: &str| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        if config.brokers.0.is_empty() {
            fault("brokers", "set brokers, such as 127.0.0.1:9092");
        } else if config.brokers.addresses().is_none() {
            fault("brokers", "it cannot be used: write host:port, several with commas between or as a list");
        }
        if config.user.is_some() != config.password.is_some() {
            let missing = if config.user.is_some() { "password" } else { "user" };
            fault(missing, "user and password belong together: set both, or none");
        }
        let mechanism = config.mechanism.unwrap_or(Mechanism::Plain);
        if config.mechanism.is_some() && config.user.is_none() {
            fault("mechanism", "it is of no use without a user and a password");
        }
        if mechanism != Mechanism::Plain && !HAS_TLS {
            fault("mechanism", "this build knows only plain: build with --features kafka-tls");
        }
        if config.tls && !HAS_TLS {
            fault("tls", NO_TLS);
        }
        check_files(config, &mut fault);
        let timeout = config.request_timeout();
        if timeout < REQUEST_TIMEOUT_MIN || timeout > REQUEST_TIMEOUT_MAX {
            let detail = format!("at least {REQUEST_TIMEOUT_MIN:?}, and at most {REQUEST_TIMEOUT_MAX:?}");
            fault("request_timeout", &detail);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let client = client_config(config, mechanism);
        let mut alone = client.clone();
        alone
            .set("batch.num.messages", "1")
            .set("message.timeout.ms", alone_time(timeout).as_millis().to_string());
        // One that is turned away leaves a gap, which an idempotent producer closes before it sends the others.
        alone.set(IDEMPOTENCE, "false").set("retries", "0");
        Ok(Self { client, alone, timeout })
    }
}

/// The files that TLS needs. The library reads them itself, and what it says of a fault names no setting.
fn check_files(config: &KafkaConfig, fault: &mut impl FnMut(&str, &str)) {
    let files =
        [("ca", &config.ca), ("client_cert", &config.client_cert), ("client_key", &config.client_key)];
    let set = files.iter().filter(|(_, file)| file.is_some()).map(|(path, _)| *path);
    if !config.tls {
        set.for_each(|path| fault(path, "it is of no use without TLS: write tls = true"));
        return;
    }
    if !HAS_TLS {
        set.for_each(|path| fault(path, NO_TLS));
        return;
    }
    if let Some(Err(detail)) = config.ca.as_deref().map(authorities) {
        fault("ca", &detail);
    }
    let checked = check_openssl_identity(config.client_cert.as_deref(), config.client_key.as_deref());
    if let Err((path, detail)) = checked {
        fault(path, &detail);
    }
}

/// A record that is sent again alone has this much of its call.
pub(super) fn alone_time(timeout: Duration) -> Duration {
    timeout / 4
}

/// What the library is told.
fn client_config(config: &KafkaConfig, mechanism: Mechanism) -> ClientConfig {
    let millis = |span: Duration| span.as_millis().to_string();
    let timeout = config.request_timeout();
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", config.brokers.addresses().unwrap_or_default().join(","))
        .set("client.id", "duly");
    // Taken by all replicas that are in sync; and what the library itself sends again is kept once.
    client.set("acks", "all").set(IDEMPOTENCE, "true");
    client.set("retries", RETRIES).set("retry.backoff.ms", "100").set("retry.backoff.max.ms", "1000");
    // It says which partitions it sends to again: see `Context`.
    client.set("debug", DEBUG).set_log_level(RDKafkaLogLevel::Debug);
    // Half of a call is for connecting. Nothing is sent after its call has ended.
    client.set("message.timeout.ms", millis(timeout / 2)).set("request.timeout.ms", millis(timeout / 2));
    client.set("topic.metadata.propagation.max.ms", millis(METADATA_SPREAD_MAX.min(timeout / 4)));
    // A call is a batch: there is nothing to wait for.
    client.set("linger.ms", "0");
    client
        .set("queue.buffering.max.messages", WAITING_MESSAGES)
        .set("queue.buffering.max.kbytes", WAITING_KIB);
    client.set("message.max.bytes", MESSAGE_BYTES);
    // The partition that Kafka's own clients choose for the same key.
    client.set("partitioner", "murmur2_random");
    client.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "1000");
    // A connection that nobody used for long is closed by brokers: no fault.
    client.set("log.connection.close", "false");
    let protocol = match (config.user.is_some(), config.tls) {
        (false, false) => "plaintext",
        (false, true) => "ssl",
        (true, false) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    client.set("security.protocol", protocol);
    if let (Some(user), Some(password)) = (&config.user, &config.password) {
        let mechanism = match mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        client.set("sasl.mechanisms", mechanism);
        client.set("sasl.username", user).set("sasl.password", password.reveal());
    }
    if let Some(ca) = &config.ca {
        client.set("ssl.ca.location", ca.display().to_string());
    }
    if let (Some(cert), Some(key)) = (&config.client_cert, &config.client_key) {
        client.set("ssl.certificate.location", cert.display().to_string());
        client.set("ssl.key.location", key.display().to_string());
    }
    client
}
