//! Starts and stops a server by its configuration.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use duly::{Clock, Duly, SweepSettings, SystemClock};
use duly_stores::OpenStore;
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

use crate::{
    auth,
    config::{Config, show_span},
    http::{self, App, AppParts, Front, Listening, SinkEntry},
    sources::Sources,
    store,
    telemetry::{Otlp, Telemetry},
};

/// Grace period of requests at shutdown.
const CALLS_GRACE: Duration = Duration::from_secs(5);
/// Grace period of deliveries after that.
const DELIVERIES_GRACE: Duration = Duration::from_secs(15);

/// A running server.
pub struct Running {
    duly: Duly,
    listening: Listening,
    sources: Sources,
    telemetry: Arc<Telemetry>,
    otlp: Option<Otlp>,
    stopping: watch::Sender<bool>,
    secure: bool,
}

/// Why a server could not start or stop: what failed, on what, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

impl StartError {
    fn because(what: &str) -> impl FnOnce(duly::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Opens the store, starts delivering and listens. Port 0 takes a free one.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let otlp = otlp(&config)?;
    start_with(config, otlp).await
}

/// Begins to export what the configuration says. Spans come from its layer, which is for the process to install.
pub fn otlp(config: &Config) -> Result<Option<Otlp>, StartError> {
    let usual;
    let node = match &*config.node {
        "" => {
            usual = usual_name(config.listen.port());
            &usual
        }
        name => name,
    };
    config.otlp.as_ref().map(|setup| Otlp::start(setup, node)).transpose()
}

/// Like [`start`], with an export that has begun.
pub async fn start_with(mut config: Config, otlp: Option<Otlp>) -> Result<Running, StartError> {
    auth::listen_allowed(config.listen, &config.tokens, config.insecure_no_auth).map_err(StartError)?;
    for overlap in config.tokens.overlaps() {
        tracing::warn!(%overlap, "tokens of different tenants overlap");
    }
    let tls = config.tls.as_ref().map(|files| files.load()).transpose();
    let tls = tls.map_err(|fault| StartError(fault.to_string()))?.map(TlsAcceptor::from);
    // Bind first: if the port is taken, the data folder is not touched.
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "is another server running there? choose another with --listen",
            std::io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address; choose one with --listen"
            }
            _ => "choose another with --listen",
        };
        StartError(format!("cannot listen on {}: {error}; {hint}", config.listen))
    })?;
    config.listen = listener.local_addr().map_err(|error| StartError(error.to_string()))?;
    let clock: Arc<dyn Clock> =
        Arc::new(SystemClock::new().map_err(|error| StartError(format!("cannot start the clock: {error}")))?);
    if config.node.is_empty() {
        config.node = usual_name(config.listen.port());
    }
    let sinks = sinks(&config, &clock)?;
    let opened = store::open(&config, clock.clone()).await?;
    let duly = engine(&config, &sinks, &opened, otlp.as_ref()).await?;
    let (stopping, stopped) = watch::channel(false);
    let exports = otlp.as_ref().map(Otlp::counts).unwrap_or_default();
    let telemetry = Telemetry::start(duly.clone(), config.alerts.clone(), exports);
    if let Some(otlp) = &otlp {
        otlp.export_metrics(&telemetry);
    }
    let parts = AppParts { duly: duly.clone(), sinks, telemetry: telemetry.clone(), stopping: stopped };
    let app = App::new(&config, parts);
    let (secure, topics) = (tls.is_some(), app.topics());
    let listening = http::listen(listener, tls, Front::new(app), &config.http)
        .map_err(|error| StartError(format!("cannot listen on {}: {error}", config.listen)))?;
    let sources = Sources::start(&config, &duly, &topics, &clock);
    Ok(Running { duly, listening, sources, telemetry, otlp, stopping, secure })
}

/// The default name of a node: host name and port. It is unique, and the same after a restart.
fn usual_name(port: u16) -> String {
    let machine = rustix::system::uname();
    format!("{}:{port}", machine.nodename().to_string_lossy())
}

fn sinks(config: &Config, clock: &Arc<dyn Clock>) -> Result<BTreeMap<duly::SinkName, SinkEntry>, StartError> {
    let entry = |(name, setup): (&duly::SinkName, &crate::config::SinkSetup)| {
        let sink =
            setup.build(clock.clone()).map_err(|fault| StartError(format!("sinks.{name}: {fault}")))?;
        let (kind, rate, timeout) = (setup.config.kind(), setup.options.rate, setup.options.timeout);
        Ok((name.clone(), SinkEntry { kind, rate, timeout, sink }))
    };
    config.sinks.iter().map(entry).collect()
}

/// Settings whose effective value differs from the configured one, because another setting bounds them.
pub fn effective(config: &Config) -> Vec<(String, serde_json::Value)> {
    let sweep = sweep_settings(config);
    let spans = [("sweep.min", sweep.min), ("sweep.max", sweep.max), ("sweep.idle_max", sweep.idle_max)];
    spans.into_iter().map(|(path, span)| (path.to_owned(), show_span(span).into())).collect()
}

/// The sweep intervals as they are used: each sweep renews the node's heartbeat, so none is longer than that.
fn sweep_settings(config: &Config) -> SweepSettings {
    let idle_max = config.sweep.idle_max.min(config.heartbeat);
    let max = config.sweep.max.min(idle_max);
    SweepSettings { idle_max, max, min: config.sweep.min.min(max), ..config.sweep.clone() }
}

async fn engine(
    config: &Config,
    sinks: &BTreeMap<duly::SinkName, SinkEntry>,
    opened: &OpenStore,
    otlp: Option<&Otlp>,
) -> Result<Duly, StartError> {
    let mut builder = Duly::builder()
        .store(opened.store.clone())
        .clock(opened.clock.clone())
        .deliver(config.deliver)
        .levels(config.levels.clone())
        .limits(config.limits.clone())
        .retry(config.retry.clone())
        .handlers(config.handlers.clone())
        .sweep(sweep_settings(config))
        .lease(config.store.lease)
        .grace(DELIVERIES_GRACE)
        .watch_topics(config.alerts.topics.keys());
    for (name, setup) in &config.sinks {
        if let Some(entry) = sinks.get(name) {
            builder = builder.sink(name.as_str(), entry.sink.clone(), setup.options.clone());
            if let Some(delivery) = store::in_store_delivery(opened, config, name) {
                builder = builder.in_store_delivery(name.as_str(), delivery);
            }
        }
    }
    if let Some(otlp) = otlp {
        builder = otlp.trace(builder);
    }
    builder.start().await.map_err(StartError::because("cannot start"))
}

impl Running {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// `http://…` or `https://…`.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.addr())
    }

    /// The engine inside.
    pub fn duly(&self) -> &Duly {
        &self.duly
    }

    /// The part that ended unexpectedly, if any. A server without its listener or its sources must be restarted.
    pub fn dead_part(&self) -> Option<&'static str> {
        if self.listening.is_finished() {
            return Some("what listens for calls");
        }
        self.sources.any_finished().then_some("what takes messages from a source")
    }

    /// Stops gracefully: accepts nothing more, finishes or releases messages in flight. Takes half a minute at most.
    pub async fn stop(self) -> Result<(), StartError> {
        // Wake long polls.
        self.stopping.send_replace(true);
        tokio::join!(self.sources.stop(), self.listening.stop(CALLS_GRACE));
        if let Some(otlp) = &self.otlp {
            otlp.last_metrics(&self.telemetry).await;
        }
        let stopped = self.duly.shutdown().await;
        // Only now, as deliveries have just ended.
        if let Some(otlp) = self.otlp {
            otlp.stop().await;
        }
        stopped.map_err(StartError::because("the store was not closed cleanly"))
    }
}
