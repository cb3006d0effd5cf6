#![doc = include_str!("docs.md")]

mod address;
mod answer;
mod busy;
mod config;
mod connect;
mod endpoint;
mod failure;
mod headers;
mod origin;
mod pattern;
mod send;
mod settings;
mod sign;
mod stream;
mod tls;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use duly_core::{Clock, Delivery, Invalid, Outcomes, Sink, SinkError, StoredMessage};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::io::AsyncReadExt;
use tower::ServiceExt;

use busy::BusyPaths;
pub use config::{AllowPrivate, Permanent, WebhookConfig};
use connect::{Connector, Resolve, SystemResolver};
use endpoint::UrlSource;
use origin::Origins;
use settings::Settings;

use crate::tls::is_certificate_io_fault;

/// An idle connection is closed after this: less than the 5 s of common servers, so that a request seldom meets a
/// connection that its target is just closing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// The head of an answer may not be longer.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// An HTTP/2 connection with requests under way and no byte from the target for so long is asked whether it is alive, and
/// given up after as long again. All its requests are then without an answer.
const PING_AFTER: Duration = Duration::from_secs(10);

/// A target that refuses our certificate has said so by then.
const REFUSAL_WITHIN: Duration = Duration::from_millis(300);

/// Delivers by HTTP.
pub struct WebhookSink {
    /// For the sink's own `url`: shows our certificate where the target asks.
    own: HttpClient,
    /// For addresses that messages name. A connection to one never serves the other, even at the same origin.
    named: HttpClient,
    settings: Settings,
    origins: Origins,
    busy_paths: BusyPaths,
    clock: Arc<dyn Clock>,
}

/// Sends requests, and keeps connections for those that follow.
#[derive(Clone)]
struct HttpClient {
    pool: Client<Connector, Full<Bytes>>,
    connector: Connector,
}

impl HttpClient {
    fn new(connector: Connector, per_origin: usize) -> Self {
        let pool = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(per_origin)
            .http1_max_buf_size(HEAD_BYTES_MAX as usize)
            .http2_max_header_list_size(HEAD_BYTES_MAX)
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_AFTER)
            .build(connector.clone());
        Self { pool, connector }
    }
}

impl WebhookSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        Self::with_resolver(settings, clock, Arc::new(SystemResolver))
    }

    fn with_resolver(
        settings: Settings,
        clock: Arc<dyn Clock>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, Invalid> {
        let tls = tls::connectors(&settings.authorities, None)?;
        let connector = Connector::new(resolver, settings.addresses.clone(), tls, clock.clone());
        let named = HttpClient::new(connector, settings.per_origin);
        let own = match settings.identity.as_deref() {
            None => named.clone(),
            Some(identity) => {
                let tls = tls::connectors(&settings.authorities, Some(identity))?;
                HttpClient::new(named.connector.with_tls(tls), settings.per_origin)
            }
        };
        let (origins, busy_paths) = (Origins::default(), BusyPaths::default());
        Ok(Self { own, named, settings, origins, busy_paths, clock })
    }

    fn client(&self, source: UrlSource) -> &HttpClient {
        match source {
            UrlSource::Config => &self.own,
            UrlSource::Message => &self.named,
        }
    }
}

#[async_trait]
impl Sink for WebhookSink {
    /// All requests begin at once: how many there are is the scheduler's to say. Each has its own time.
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let send = |(index, delivery)| async move { outcomes.report(index, self.send(delivery).await) };
        let mut under_way: FuturesUnordered<_> = batch.iter().enumerate().map(send).collect();
        while under_way.next().await.is_some() {}
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        endpoint::destination(message.topic.as_str())
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        let settings = &self.settings;
        let endpoint =
            endpoint::endpoint_of(message.topic.as_str(), settings.base.as_ref(), &settings.allowed)?;
        headers::check(message, endpoint.source, settings)
    }

    /// Connects, with TLS if the address asks for it, and sends nothing. Without a base address there is nothing to ask.
    async fn probe(&self) -> Result<(), SinkError> {
        let Some(base) = &self.settings.base else { return Ok(()) };
        let uri = endpoint::endpoint_of("/", Some(base), &[]).map_err(|fault| send::misfit(&fault))?.uri;
        let is_tls = uri.scheme_str() == Some("https");
        let connected = tokio::select! {
            biased;
            connected = self.own.connector.clone().oneshot(uri) => connected,
            () = self.clock.sleep_until(self.clock.now().mono().saturating_add(self.settings.timeout)) => {
                return Err(SinkError::unreachable("no connection in time"));
            }
        };
        let mut stream = connected.map_err(|why| SinkError::new(why.kind(), why.to_string()))?.into_inner();
        if !is_tls {
            return Ok(());
        }
        // By TLS 1.3 a target that refuses our certificate says so once the connection is open; any other waits for a request.
        // Real time: the target answers by its own.
        let read = tokio::time::timeout(REFUSAL_WITHIN, stream.read_u8()).await;
        match read {
            Ok(Err(why)) if is_certificate_io_fault(&why) => {
                let detail = format!("the target refuses our certificate or misses one: {why}");
                Err(SinkError::misconfigured(detail))
            }
            _ => Ok(()),
        }
    }
}
