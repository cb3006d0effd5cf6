#![doc = include_str!("docs.md")]

mod ask;
mod config;
mod failure;
mod link;
mod publish;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};

pub use config::{NatsConfig, NatsMode};
use failure::{no_answer, no_connection};
use link::{Link, Wire};
use publish::{Parcel, Stage};
use settings::Settings;

use crate::Remark;

/// The receipt of a message that core NATS was given.
const HANDED_OVER: &str = "handed to the server; at most once";

/// Publishes to NATS.
pub struct NatsSink {
    link: Link,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

type Outcome = Result<String, SinkError>;

impl NatsSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { link: Link::new(), settings, clock }
    }

    /// The ends of a call: a connection must stand by the first, answers must be there by the second.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        let after = |span| now.saturating_add(span);
        (after(self.settings.timeout / 2), after(self.settings.timeout))
    }

    async fn within<T>(&self, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(end) => None,
        }
    }

    async fn wire(&self, until: Monotonic) -> Result<Wire, SinkError> {
        let wire = self.within(until, self.link.wire(&self.settings)).await;
        wire.unwrap_or_else(|| Err(no_connection("no connection in time")))
    }

    /// Sends these, which have the form of NATS.
    async fn send(&self, parcels: Vec<Parcel>) -> Vec<Outcome> {
        let count = parcels.len();
        let (begin_until, end) = self.ends();
        let wire = match self.wire(begin_until).await {
            Ok(wire) => wire,
            Err(failure) => return vec![Err(failure); count],
        };
        if self.settings.mode == NatsMode::Core {
            return self.hand_over(&wire, parcels, end).await;
        }
        let subjects: Vec<String> = parcels.iter().map(|parcel| parcel.subject.clone()).collect();
        let mut stages: Vec<Stage> = (0..count).map(|_| Stage::Waiting).collect();
        let in_time = self.within(end, publish::publish(&wire, parcels, &mut stages)).await;
        if in_time.is_none() {
            // Whatever hangs there, the next call does not wait for it.
            self.link.drop_wire(&wire).await;
        }
        let mut nobody = BTreeMap::new();
        for (stage, subject) in stages.iter().zip(&subjects) {
            if matches!(stage, Stage::Nobody) && !nobody.contains_key(subject) {
                let why = self.within(end, ask::why_nobody(&wire, subject)).await;
                let why =
                    why.unwrap_or_else(|| no_connection("nobody took it, and JetStream does not say why"));
                nobody.insert(subject.clone(), why);
            }
        }
        publish::outcomes(stages, &subjects, &nobody)
    }

    /// Core NATS acknowledges nothing: that the server has read it all is the most that can be known.
    async fn hand_over(&self, wire: &Wire, parcels: Vec<Parcel>, end: Monotonic) -> Vec<Outcome> {
        let count = parcels.len();
        let max = wire.client.server_info().max_payload;
        let mut outcomes = Vec::with_capacity(count);
        let sending = async {
            for Parcel { subject, headers, body } in parcels {
                if body.len() > max {
                    let detail = format!("its body has {} bytes, and the server takes {max}", body.len());
                    outcomes.push(Err(failure::refused(detail)));
                    continue;
                }
                let sent = wire.client.publish_with_headers(subject, headers, body).await;
                outcomes.push(match sent {
                    Ok(()) => Ok(HANDED_OVER.to_owned()),
                    Err(error) => Err(no_answer(error.to_string())),
                });
            }
            ask::has_read(wire).await.is_ok() && !wire.is_broken()
        };
        if self.within(end, sending).await != Some(true) {
            self.link.drop_wire(wire).await;
            let lost = || Err(no_answer("the server did not say that it has read it"));
            outcomes.iter_mut().filter(|outcome| outcome.is_ok()).for_each(|outcome| *outcome = lost());
        }
        outcomes.resize(count, Err(no_connection("the connection was lost before this was sent")));
        outcomes
    }

    /// What works and is odd all the same.
    async fn look(&self, again: Duration) -> Vec<Remark> {
        if self.settings.mode == NatsMode::Core {
            return vec![Remark {
                detail:
                    "core NATS is at-most-once: whoever does not listen at that moment never gets the message"
                        .into(),
                remedy: "leave mode out for JetStream, which stores and acknowledges".into(),
            }];
        }
        let (begin_until, end) = self.ends();
        match self.wire(begin_until).await {
            Ok(wire) => self.within(end, ask::look(&wire, again)).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

impl NatsSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let (mut parcels, mut faults) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for delivery in batch {
            faults.push(Parcel::of(delivery).map(|parcel| parcels.push(parcel)).err());
        }
        let mut sent = if parcels.is_empty() { Vec::new() } else { self.send(parcels).await }.into_iter();
        let missing = || Err(no_answer("NATS left it unanswered"));
        let each = faults.into_iter();
        each.map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err)).collect()
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, if need be, and asks whether there is a JetStream. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let wire = self.wire(begin_until).await?;
        let asked = match self.settings.mode {
            NatsMode::Jetstream => self.within(end, ask::is_there(&wire)).await,
            NatsMode::Core => self.within(end, ask::has_read(&wire)).await,
        };
        let asked = asked.unwrap_or_else(|| Err(no_connection("no answer in time")));
        if asked.as_ref().is_err_and(|error| error.kind == SinkErrorKind::Unreachable) {
            self.link.drop_wire(&wire).await;
        }
        asked
    }
}
