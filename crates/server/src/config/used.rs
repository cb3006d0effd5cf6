//! The configuration as used: everything set, everything checked.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use duly::{HandlerOptions, Levels, Limits, Pace, RetryPolicy, SinkName, SinkOptions};

use crate::auth::Tokens;

/// All settings of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where HTTP listens.
    pub listen: SocketAddr,
    /// The data folder of the embedded store.
    pub data: PathBuf,
    /// Whether this node delivers, or only accepts.
    pub deliver: bool,
    /// Where messages wait.
    pub store: StoreSetup,
    /// Where messages go, besides the built-in queue.
    pub sinks: BTreeMap<SinkName, SinkSetup>,
    /// The named delays.
    pub levels: Levels,
    /// How often the sweep looks.
    pub scan: Pace,
    /// The retries of every sink that names none of its own.
    pub retry: RetryPolicy,
    /// How the built-in queue is served.
    pub handlers: HandlerOptions,
    /// What operators want to be told.
    pub alerts: AlertRules,
    /// What one message and one batch may be.
    pub limits: Limits,
    /// What one connection may be.
    pub http: HttpLimits,
    /// Who may call.
    pub tokens: Tokens,
    /// Listen beyond loopback without tokens.
    pub insecure_no_auth: bool,
    /// The certificate, if HTTP is to be HTTPS.
    pub tls: Option<TlsFiles>,
    /// The name of this node.
    pub node: String,
}

/// Where messages wait.
#[derive(Debug, Clone)]
pub struct StoreSetup {
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
    /// How it is served.
    pub options: SinkOptions,
    /// What it is.
    pub config: duly_sinks::SinkConfig,
}

/// What connections may take.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Connections at the same time.
    pub connections: usize,
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
#[derive(Debug, Clone, Default)]
pub struct AlertRules {
    /// Over everything.
    pub all: Thresholds,
    /// Per topic, instead of those.
    pub topics: BTreeMap<String, Thresholds>,
    /// Where alerts are posted, too.
    pub webhook: Option<String>,
}

/// Each is off if it is not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds {
    /// The oldest due and unsettled message of a lane nobody paused.
    pub overdue: Option<Duration>,
    /// Messages pending.
    pub queue_length: Option<u64>,
    /// 99 of 100 tries begin no later than this.
    pub lateness_p99: Option<Duration>,
    /// Failed tries of all tries.
    pub failure_rate: Option<f64>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for StoreSetup {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            retention: Duration::from_secs(24 * 3600),
            retention_max: 1_000_000,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7380)),
            data: PathBuf::from("./duly-data"),
            deliver: true,
            store: StoreSetup::default(),
            sinks: BTreeMap::new(),
            levels: Levels::default(),
            scan: Pace::default(),
            retry: RetryPolicy::default(),
            handlers: HandlerOptions::default(),
            alerts: AlertRules::default(),
            limits: Limits::default(),
            http: HttpLimits::default(),
            tokens: Tokens::default(),
            insecure_no_auth: false,
            tls: None,
            node: "duly".into(),
        }
    }
}
