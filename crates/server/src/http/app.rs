//! State shared by all handlers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use duly::{Duly, Limits, Rate, SinkName};
use tokio::{sync::watch, time::Instant};

use super::{
    answer_memory::AnswerMemory, body_memory::BodyMemory, followers::Followers, lanes::RecentLanes,
    proxied::Proxied, topics::Topics,
};
use crate::{auth::Tokens, config::HttpLimits, telemetry::Telemetry};

/// One server's parts, shared by all connections.
pub struct App {
    /// The engine.
    pub duly: Duly,
    /// The configured sinks.
    pub sinks: BTreeMap<SinkName, SinkEntry>,
    /// Metrics and alerts.
    pub telemetry: Arc<Telemetry>,
    /// Tokens and their roles.
    pub tokens: Tokens,
    /// Limits of a message and of a batch.
    pub limits: Limits,
    /// Limits of a connection.
    pub http: HttpLimits,
    /// This node.
    pub node: NodeInfo,
    /// Turns true when the server stops.
    pub stopping: watch::Receiver<bool>,
    pub(super) bodies: BodyMemory,
    pub(super) answers: AnswerMemory,
    pub(super) followers: Followers,
    pub(super) proxied: Proxied,
    pub(super) topics: Arc<Topics>,
    pub(super) recent_lanes: RecentLanes,
}

/// Facts about this node.
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Its listen address. On loopback, only names of this machine are accepted as Host.
    pub listen: std::net::SocketAddr,
    /// Whether it delivers, or only accepts.
    pub delivers: bool,
    pub(super) started: duly::Timestamp,
    begun: Instant,
}

/// A configured sink.
pub struct SinkEntry {
    /// `webhook`, `kafka` …
    pub kind: &'static str,
    /// Messages per second at most.
    pub rate: Option<Rate>,
    /// How long a probe may take.
    pub timeout: Duration,
    /// The sink itself, to probe it.
    pub sink: Arc<dyn duly::Sink>,
}

/// The parts that [`App::new`] puts together.
#[expect(missing_docs, reason = "the fields of App say what they are")]
pub struct AppParts {
    pub duly: Duly,
    pub sinks: BTreeMap<SinkName, SinkEntry>,
    pub telemetry: Arc<Telemetry>,
    pub stopping: watch::Receiver<bool>,
}

impl App {
    /// A server's parts.
    pub fn new(config: &crate::config::Config, parts: AppParts) -> Arc<Self> {
        Arc::new(Self {
            node: NodeInfo {
                name: config.node.clone(),
                listen: config.listen,
                delivers: config.deliver,
                started: parts.duly.now(),
                begun: Instant::now(),
            },
            duly: parts.duly,
            sinks: parts.sinks,
            telemetry: parts.telemetry,
            tokens: config.tokens.clone(),
            limits: config.limits.clone(),
            http: config.http.clone(),
            stopping: parts.stopping,
            bodies: BodyMemory::new(&config.limits),
            answers: AnswerMemory::new(config.http.answer_bytes, &config.tokens),
            followers: Followers::new(&config.tokens),
            proxied: Proxied::default(),
            topics: Arc::new(Topics::new(config.http.topics, &config.tokens)),
            recent_lanes: RecentLanes::default(),
        })
    }

    /// The topics of the built-in queue. Sources create some without a request.
    pub(crate) fn topics(&self) -> Arc<Topics> {
        self.topics.clone()
    }

    /// How long the server has run.
    pub(super) fn age(&self) -> Duration {
        self.node.begun.elapsed()
    }

    /// Completes when the server stops. Long waits select on it.
    pub(super) async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the sender was dropped: the server has stopped.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}
