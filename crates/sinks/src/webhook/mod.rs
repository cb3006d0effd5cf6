#![doc = include_str!("docs.md")]

mod address;
mod answer;
mod config;
mod connect;
mod headers;
mod pattern;
mod place;
mod send;
mod settings;
mod sign;
mod tls;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use duly_core::{Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tower::ServiceExt;

pub use config::{AllowPrivate, Permanent, WebhookConfig};
use connect::{Connector, Resolve, SystemResolver};
use settings::Settings;

/// An idle connection is closed after this: less than the 5 s of common servers, so that a request seldom meets a
/// connection that its target is just closing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// The head of an answer may not be longer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Delivers by HTTP.
pub struct WebhookSink {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

/// The time that one call has.
#[derive(Clone, Copy)]
struct Call {
    /// What has not begun by now is not begun any more: it would have too little time to be answered.
    begin_until: Monotonic,
    end: Monotonic,
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
        let tls = tls::connector(&settings.authorities)?;
        let connector = Connector::new(resolver, settings.addresses.clone(), tls, clock.clone());
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(settings.parallel)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector.clone());
        Ok(Self { client, connector, settings, clock })
    }

    fn call(&self) -> Call {
        let now = self.clock.now().mono();
        Call {
            begin_until: now.saturating_add(self.settings.timeout / 2),
            end: now.saturating_add(self.settings.timeout),
        }
    }

    async fn numbered(
        &self,
        place: usize,
        delivery: &Delivery,
        call: Call,
    ) -> (usize, Result<String, SinkError>) {
        (place, self.send(delivery, call).await)
    }
}

impl WebhookSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let call = self.call();
        let mut outcomes: Vec<Option<Result<String, SinkError>>> = vec![None; batch.len()];
        let mut waiting = batch.iter().enumerate();
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.settings.parallel {
                let Some((place, delivery)) = waiting.next() else { break };
                under_way.push(self.numbered(place, delivery, call));
            }
            let Some((place, outcome)) = under_way.next().await else { break };
            outcomes[place] = Some(outcome);
        }
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "no outcome was recorded"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }
}

#[async_trait]
impl Sink for WebhookSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, with TLS if the address asks for it, and sends nothing. Without a base address there is nothing to ask.
    async fn probe(&self) -> Result<(), SinkError> {
        let Some(base) = &self.settings.base else { return Ok(()) };
        let uri = place::place("/", Some(base), &[]).map_err(|fault| send::misfit(&fault))?.uri;
        let connected = tokio::select! {
            biased;
            connected = self.connector.clone().oneshot(uri) => connected,
            () = self.clock.sleep_until(self.call().end) => {
                return Err(SinkError::new(SinkErrorKind::Unreachable, "no connection in time"));
            }
        };
        connected.map(drop).map_err(|why| SinkError::new(why.kind(), why.to_string()))
    }
}
