//! What every handler knows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use duly::{Duly, Limits, Rate, SinkName};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use super::{followers::Followers, lanes::RecentLanes, proxied::Proxied, topics::Topics};
use crate::{auth::Tokens, config::HttpLimits, telemetry::Telemetry};

/// One server's parts, shared by all connections.
pub struct App {
    /// The engine.
    pub duly: Duly,
    /// The configured sinks.
    pub sinks: BTreeMap<SinkName, SinkEntry>,
    /// What is measured.
    pub telemetry: Arc<Telemetry>,
    /// Who may call.
    pub tokens: Tokens,
    /// Where it listens: on loopback only names of this machine are taken as Host.
    pub listen: std::net::SocketAddr,
    /// What one message and one batch may be.
    pub limits: Limits,
    /// What one connection may be.
    pub http: HttpLimits,
    /// The name of this node.
    pub node: String,
    /// Whether this node delivers, or only accepts.
    pub delivers: bool,
    /// Turns true when the server stops.
    pub stopping: watch::Receiver<bool>,
    pub(super) body_bytes: Arc<Semaphore>,
    pub(super) followers: Followers,
    pub(super) started: duly::Timestamp,
    pub(super) proxied: Proxied,
    pub(super) topics: Arc<Topics>,
    pub(super) recent_lanes: RecentLanes,
    begun: Instant,
}

/// A configured sink.
pub struct SinkEntry {
    /// What it is.
    pub kind: &'static str,
    /// How fast it may go.
    pub rate: Option<Rate>,
    /// How long a probe may take.
    pub timeout: Duration,
    /// The sink itself, to probe it.
    pub sink: Arc<dyn duly::Sink>,
}

/// The parts that [`App::new`] puts together.
#[expect(missing_docs, reason = "the fields of App say what they are")]
pub struct Parts {
    pub duly: Duly,
    pub sinks: BTreeMap<SinkName, SinkEntry>,
    pub telemetry: Arc<Telemetry>,
    pub stopping: watch::Receiver<bool>,
}

impl App {
    /// A server's parts.
    pub fn new(config: &crate::config::Config, parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            started: parts.duly.now(),
            duly: parts.duly,
            sinks: parts.sinks,
            telemetry: parts.telemetry,
            tokens: config.tokens.clone(),
            listen: config.listen,
            limits: config.limits.clone(),
            http: config.http.clone(),
            node: config.node.clone(),
            delivers: config.deliver,
            stopping: parts.stopping,
            body_bytes: Arc::new(Semaphore::new(super::body::room(&config.limits))),
            followers: Followers::new(&config.tokens),
            proxied: Proxied::default(),
            topics: Arc::new(Topics::new(config.http.topics, &config.tokens)),
            recent_lanes: RecentLanes::default(),
            begun: Instant::now(),
        })
    }

    /// The topics of the built-in queue, for whoever makes some without a request.
    pub(crate) fn topics(&self) -> Arc<Topics> {
        self.topics.clone()
    }

    /// For how long the server has run.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Ends when the server stops: what waits for long must give up then.
    pub(super) async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the server is gone altogether.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
