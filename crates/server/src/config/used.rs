//! The configuration as used: everything set, everything checked.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use duly::{
    Clock, HandlerOptions, Invalid, Levels, Limits, RetryPolicy, Sink, SinkName, SinkOptions, SweepSettings,
};
use duly_stores::{EmbeddedConfig, Retention, StoreConfig};

use super::secret::{Secret, only_host};
use crate::auth::Tokens;

/// All settings of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where HTTP listens.
    pub listen: SocketAddr,
    /// Whether this node delivers, or only accepts.
    pub deliver: bool,
    /// Where messages wait.
    pub store: StoreSetup,
    /// Where messages go, besides the built-in queue.
    pub sinks: BTreeMap<SinkName, SinkSetup>,
    /// Where messages come from, besides HTTP.
    pub sources: BTreeMap<String, SourceSetup>,
    /// The named delays.
    pub levels: Levels,
    /// The intervals of the sweep.
    pub sweep: SweepSettings,
    /// The retries of every sink that names none of its own.
    pub retry: RetryPolicy,
    /// How the built-in queue is served.
    pub handlers: HandlerOptions,
    /// When alerts are sent, and where.
    pub alerts: AlertRules,
    /// Where traces and metrics are exported to, if they are.
    pub otlp: Option<OtlpSetup>,
    /// The limits of a message and of a batch.
    pub limits: Limits,
    /// The limits of a connection.
    pub http: HttpLimits,
    /// The tokens and their roles.
    pub tokens: Tokens,
    /// Listen beyond loopback without tokens.
    pub insecure_no_auth: bool,
    /// The certificate, if HTTP is to be HTTPS.
    pub tls: Option<TlsFiles>,
    /// The name of this node.
    pub node: String,
    /// How often nodes that share a store say that they are there.
    pub heartbeat: Duration,
}

/// A queue of RabbitMQ from which messages are taken that ask for a delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSetup {
    /// Where the broker is; may hold a password.
    pub url: Secret,
    /// The queue.
    pub queue: String,
    /// Where messages go at their time.
    pub sink: SinkName,
    /// The topic they go to; `{routing_key}` and `{exchange}` are those that the message came with.
    pub topic: String,
    /// How many messages are taken before the first of them is safe here.
    pub prefetch: u16,
    /// Where messages go that Duly cannot take. Without it they go to the queue `<queue>.refused`.
    pub dead_letter_exchange: Option<String>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, the client's own first.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}

impl SourceSetup {
    pub(super) const TOPIC: &str = "{routing_key}";
    pub(super) const PREFETCH: u16 = 1000;

    /// The broker, as a sink would be told of it.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn broker(&self) -> duly_sinks::RabbitmqConfig {
        let url = duly_sinks::OneOrMany(vec![self.url.reveal().into()]);
        duly_sinks::RabbitmqConfig {
            url,
            ca: self.ca.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
            ..duly_sinks::RabbitmqConfig::default()
        }
    }

    /// The fault in the address of the broker: the setting, and why.
    #[cfg(feature = "rabbitmq")]
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        let files = ["ca", "client_cert", "client_key"];
        let key = |path: &str| files.into_iter().find(|file| *file == path).unwrap_or("url");
        self.broker().check().into_iter().map(|fault| (key(&fault.path), fault.detail)).collect()
    }

    #[cfg(not(feature = "rabbitmq"))]
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Where messages wait.
#[derive(Debug, Clone)]
pub struct StoreSetup {
    /// In what.
    pub config: StoreConfig,
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// How long finished messages can be asked for.
    pub retention: Duration,
    /// How many of them at most.
    pub retention_max: usize,
}

/// One sink: what it is, and how it is served.
#[derive(Debug, Clone)]
pub struct SinkSetup {
    /// Rate, retries and concurrency.
    pub options: SinkOptions,
    /// The settings of its technology.
    pub config: duly_sinks::SinkConfig,
    /// The attributes of its messages, if they are CloudEvents.
    pub cloudevents: Option<duly_sinks::CloudEventsConfig>,
}

impl SinkSetup {
    /// A sink as it is usually served.
    pub fn of(config: duly_sinks::SinkConfig) -> Self {
        Self { options: SinkOptions::default(), config, cloudevents: None }
    }

    /// The sink. It tells the time by `clock`.
    pub(crate) fn build(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Sink>, Invalid> {
        let sink = self.config.build(clock)?;
        Ok(match &self.cloudevents {
            Some(attributes) => attributes.wrap(sink, self.config.kind()),
            None => sink,
        })
    }
}

/// The limits of connections.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Connections at the same time.
    pub connections: usize,
    /// Of these, how many from one address.
    pub connections_per_address: usize,
    /// Topics of the built-in queue that hold something.
    pub topics: usize,
    /// Bytes of large answers in memory over all connections, until clients have read them. No setting.
    pub answer_bytes: usize,
    /// How long a client may take to send its head.
    pub header_timeout: Duration,
    /// How long a client may take to send its body, or the next line of a batch.
    pub body_timeout: Duration,
}

/// The certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// When operators want to be told.
#[derive(Clone, Default)]
pub struct AlertRules {
    /// Over everything.
    pub all: Thresholds,
    /// Per topic, instead of those: complete, what a topic leaves out is taken from `all` already.
    pub topics: BTreeMap<String, Thresholds>,
    /// Where alerts are posted, too.
    pub webhook: Option<String>,
}

/// A collector that takes traces and metrics by OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSetup {
    /// Its address, without `/v1/traces`.
    pub endpoint: Secret,
    /// Headers of every request.
    pub headers: BTreeMap<String, Secret>,
    /// A PEM file with certificate authorities that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// How long one request may take.
    pub timeout: Duration,
    /// How often metrics are exported.
    pub interval: Duration,
    /// Of the traces that begin here, the share that is exported.
    pub sample_ratio: f64,
    /// Attributes of this process besides the usual ones.
    pub resource: BTreeMap<String, String>,
}

/// Each is off if it is not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds {
    /// The oldest due and unsettled message of a lane nobody paused.
    pub overdue: Option<Duration>,
    /// Messages pending.
    pub queue_length: Option<u64>,
    /// 99 of 100 attempts begin no later than this.
    pub lateness_p99: Option<Duration>,
    /// Failed tries of all tries.
    pub failure_rate: Option<f64>,
    /// Dead letters kept.
    pub dead_letters: Option<u64>,
}

impl fmt::Debug for AlertRules {
    /// Without the path of the webhook: chat services put the secret there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertRules")
            .field("all", &self.all)
            .field("topics", &self.topics)
            .field("webhook", &self.webhook.as_deref().map(only_host))
            .finish()
    }
}

impl Thresholds {
    /// The thresholds of a configuration without any.
    pub fn usual() -> Self {
        Self {
            overdue: Some(Duration::from_secs(10)),
            queue_length: Some(1_000_000),
            lateness_p99: Some(Duration::from_secs(5)),
            failure_rate: Some(0.1),
            dead_letters: Some(0),
        }
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 5_000,
            topics: 10_000,
            answer_bytes: 128 << 20,
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
        }
    }
}

impl StoreSetup {
    /// A store with the usual lease and retention of its kind.
    pub fn of(config: StoreConfig) -> Self {
        let Retention { span: retention, max: retention_max } = config.retention();
        Self { config, lease: Duration::from_secs(10), retention, retention_max }
    }

    /// The store in files of Duly's own in `folder`.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self::of(StoreConfig::Embedded(EmbeddedConfig::new(folder)))
    }
}

impl Default for StoreSetup {
    fn default() -> Self {
        Self::in_folder("./duly-data")
    }
}

impl Config {
    /// The data folder, if messages wait in one.
    pub fn data(&self) -> Option<&Path> {
        match &self.store.config {
            StoreConfig::Embedded(config) => Some(&config.folder),
            _ => None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7380)),
            deliver: true,
            store: StoreSetup::default(),
            sinks: BTreeMap::new(),
            sources: BTreeMap::new(),
            levels: Levels::default(),
            sweep: SweepSettings::default(),
            retry: RetryPolicy::default(),
            handlers: HandlerOptions::default(),
            alerts: AlertRules { all: Thresholds::usual(), ..AlertRules::default() },
            otlp: None,
            limits: Limits::default(),
            http: HttpLimits::default(),
            tokens: Tokens::default(),
            insecure_no_auth: false,
            tls: None,
            node: String::new(),
            heartbeat: Duration::from_secs(2),
        }
    }
}
