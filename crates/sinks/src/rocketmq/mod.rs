#![doc = include_str!("docs.md")]

mod batch;
mod brokers;
mod call;
mod config;
mod connection;
mod doctor;
mod failure;
mod frame;
mod message;
mod namesrv;
mod properties;
mod receipt;
mod request;
mod route;
mod send;
mod settings;
mod sign;
mod silence;
mod unique_key;
mod window;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind, StoredMessage,
};
use futures_util::{StreamExt, stream::FuturesUnordered};

use brokers::Brokers;
use call::SendCall;
pub use config::RocketmqConfig;
use connection::Connections;
use failure::{Failure, SUCCESS};
use frame::Code;
use route::Routes;
use settings::Settings;

/// Sends to RocketMQ.
pub struct RocketmqSink {
    routes: Routes,
    brokers: Brokers,
    connections: Arc<Connections>,
    timeout: Duration,
    accept_weaker: bool,
    clock: Arc<dyn Clock>,
    /// Round-robin counter, for messages that may go to any queue.
    turn: AtomicUsize,
}

impl RocketmqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let connections = Arc::new(Connections::new(settings.tls, settings.signer, clock.clone()));
        Self {
            routes: Routes::new(settings.namesrv, connections.clone()),
            brokers: Brokers::default(),
            connections,
            timeout: settings.timeout,
            accept_weaker: settings.accept_weaker,
            clock,
            turn: AtomicUsize::new(0),
        }
    }

    /// Deadlines of a call: to have connections, and to have all answers.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.connections.now();
        (now.saturating_add(self.timeout / 2), now.saturating_add(self.timeout))
    }

    /// Sends a heartbeat with our credentials. Nothing is written.
    async fn heartbeat(&self, address: &Arc<str>, end: Monotonic) -> Result<(), Failure> {
        let body = message::heartbeat();
        let reply =
            self.connections.ask(address, end, Code::Heartbeat, BTreeMap::new(), body.as_bytes()).await;
        let answer = match reply {
            Ok(answer) => answer,
            Err(why) => {
                self.brokers.down(address, self.connections.now());
                return Err(failure::connect_failed("the broker", address, &why));
            }
        };
        self.brokers.answered(address, self.connections.now());
        if answer.code == SUCCESS {
            return Ok(());
        }
        let failure = failure::classify(&answer);
        match failure.kind {
            // The credentials are valid. Rights are a matter of each topic.
            SinkErrorKind::Denied => Ok(()),
            // Nothing was sent that could have arrived.
            SinkErrorKind::Unknown => Err(Failure::unsent(failure.detail)),
            _ => Err(failure),
        }
    }
}

#[async_trait]
impl Sink for RocketmqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let (begin_until, end) = self.ends();
        SendCall { sink: self, outcomes, begin_until, end }.run(batch).await;
    }

    fn check(&self, message: &StoredMessage) -> Result<(), Invalid> {
        message::check(message)
    }

    /// Asks the name servers for the masters, and sends each a heartbeat: one answer is enough.
    async fn probe(&self) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let masters = self.routes.masters(begin_until).await?;
        let pending = masters.iter().map(|master| self.heartbeat(&master.address, end));
        let mut pending: FuturesUnordered<_> = pending.collect();
        let mut failed = SinkError::unreachable("there is no broker");
        while let Some(answer) = pending.next().await {
            match answer {
                Ok(()) => return Ok(()),
                // The error of a broker says more than that another one is unreachable.
                Err(failure) if failed.kind == SinkErrorKind::Unreachable => failed = failure.error(false),
                Err(_) => {}
            }
        }
        Err(failed)
    }
}
