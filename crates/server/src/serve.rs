//! A whole server, from its configuration.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use duly::{Clock, Duly, SweepSettings, SystemClock};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

use crate::{
    auth,
    config::{Config, show_span},
    http::{self, App, Front, Listening, Parts, SinkEntry},
    sources::Sources,
    store::{self, Opened},
    telemetry::Telemetry,
};

/// How long calls under way may take when the server stops.
const CALLS_GRACE: Duration = Duration::from_secs(5);
/// How long deliveries under way may take after that.
const DELIVERIES_GRACE: Duration = Duration::from_secs(15);

/// A server that runs.
pub struct Running {
    duly: Duly,
    listening: Listening,
    sources: Sources,
    stopping: watch::Sender<bool>,
    secure: bool,
}

/// Why a server could not start or stop: what happened, to what, and what to do now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

impl StartError {
    fn because(what: &str) -> impl FnOnce(duly::Error) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

/// Opens the store, starts delivering and listens. Port 0 takes a free one.
pub async fn start(mut config: Config) -> Result<Running, StartError> {
    auth::listen_allowed(config.listen, &config.tokens, config.insecure_no_auth).map_err(StartError)?;
    for overlap in config.tokens.overlaps() {
        tracing::warn!(%overlap, "tokens of different tenants overlap");
    }
    let tls = config.tls.as_ref().map(|files| files.load()).transpose();
    let tls = tls.map_err(|fault| StartError(fault.to_string()))?.map(TlsAcceptor::from);
    // Listening comes first: whoever finds the port taken has not touched the data folder.
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
    let duly = engine(&config, &sinks, &opened).await?;
    let (stopping, stopped) = watch::channel(false);
    let telemetry = Telemetry::start(duly.clone(), config.alerts.clone());
    let app = App::new(&config, Parts { duly: duly.clone(), sinks, telemetry, stopping: stopped });
    let (secure, topics) = (tls.is_some(), app.topics());
    let listening = http::listen(listener, tls, Front::new(app), &config.http)
        .map_err(|error| StartError(format!("cannot listen on {}: {error}", config.listen)))?;
    let sources = Sources::start(&config, &duly, &topics, &clock);
    Ok(Running { duly, listening, sources, stopping, secure })
}

/// The name of a node that was given none: the machine's and the port, the same after a restart and no other node's.
fn usual_name(port: u16) -> String {
    let machine = rustix::system::uname();
    format!("{}:{port}", machine.nodename().to_string_lossy())
}

fn sinks(config: &Config, clock: &Arc<dyn Clock>) -> Result<BTreeMap<duly::SinkName, SinkEntry>, StartError> {
    let entry = |(name, setup): (&duly::SinkName, &crate::config::SinkSetup)| {
        let sink = setup
            .config
            .build(clock.clone())
            .map_err(|fault| StartError(format!("sinks.{name}: {fault}")))?;
        let (kind, rate, timeout) = (setup.config.kind(), setup.options.rate, setup.options.timeout);
        Ok((name.clone(), SinkEntry { kind, rate, timeout, sink }))
    };
    config.sinks.iter().map(entry).collect()
}

/// The settings that are used otherwise than they are written, because another one bounds them, as they are used.
pub(crate) fn effective(config: &Config) -> Vec<(String, serde_json::Value)> {
    let pace = pace(config);
    let spans = [("scan.min", pace.min), ("scan.max", pace.max), ("scan.idle_max", pace.idle_max)];
    spans.into_iter().map(|(path, span)| (path.to_owned(), show_span(span).into())).collect()
}

/// The pace as it is used: a node says that it is there with every sweep, so that none may come later than the heartbeat.
fn pace(config: &Config) -> SweepSettings {
    let idle_max = config.scan.idle_max.min(config.heartbeat);
    let max = config.scan.max.min(idle_max);
    SweepSettings { idle_max, max, min: config.scan.min.min(max), ..config.scan.clone() }
}

async fn engine(
    config: &Config,
    sinks: &BTreeMap<duly::SinkName, SinkEntry>,
    opened: &Opened,
) -> Result<Duly, StartError> {
    let mut builder = Duly::builder()
        .store(opened.store.clone())
        .clock(opened.clock.clone())
        .deliver(config.deliver)
        .levels(config.levels.clone())
        .limits(config.limits.clone())
        .retry(config.retry.clone())
        .handlers(config.handlers.clone())
        .scan(pace(config))
        .lease(config.store.lease)
        .grace(DELIVERIES_GRACE)
        .watch_topics(config.alerts.topics.keys());
    for (name, setup) in &config.sinks {
        if let Some(entry) = sinks.get(name) {
            builder = builder.sink(name.as_str(), entry.sink.clone(), setup.options.clone());
            if let Some(mover) = opened.in_store_delivery(config, name) {
                builder = builder.in_store_delivery(name.as_str(), mover);
            }
        }
    }
    builder.start().await.map_err(StartError::because("cannot start"))
}

impl Running {
    /// Where it listens.
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

    /// What died without being asked to, if anything: a server that nobody reaches, or that takes nothing from its sources any
    /// more, is to be started again.
    pub(crate) fn dead_part(&self) -> Option<&'static str> {
        if self.listening.is_finished() {
            return Some("what listens for calls");
        }
        self.sources.any_finished().then_some("what takes messages from a source")
    }

    /// Stops cleanly: accepts nothing more, finishes or hands back what is under way. Within half a minute, whatever
    /// happens.
    pub async fn stop(self) -> Result<(), StartError> {
        // Those who wait for long give up now.
        self.stopping.send_replace(true);
        tokio::join!(self.sources.stop(), self.listening.stop(CALLS_GRACE));
        self.duly.shutdown().await.map_err(StartError::because("the store was not closed cleanly"))
    }
}
