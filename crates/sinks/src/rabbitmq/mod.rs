#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod link;
mod publish;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};
use futures_util::{FutureExt, future::join_all};
use lapin::{ExchangeKind, options::ExchangeDeclareOptions, types::FieldTable};

pub use config::RabbitmqConfig;
use failure::{no_answer, no_connection};
use link::{Link, Wire};
use publish::{Answers, Batch, Parcel};
use settings::Settings;

/// Publishes to RabbitMQ.
pub struct RabbitmqSink {
    link: Link,
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// The most bytes of a body that the broker is known to take: a larger one would end the channel of its neighbours.
    size_max: AtomicUsize,
}

type Outcome = Result<String, SinkError>;

/// A connection of its own, to take messages from the broker instead of giving it some.
pub async fn connect(config: &RabbitmqConfig) -> Result<lapin::Connection, SinkError> {
    match Settings::read(config) {
        Ok(settings) => link::connect(&settings).await,
        Err(mut faults) => {
            Err(SinkError::new(SinkErrorKind::Misconfigured, faults.swap_remove(0).to_string()))
        }
    }
}

impl RabbitmqSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { link: Link::default(), settings, clock, size_max: AtomicUsize::new(usize::MAX) }
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
        let wire = wire.unwrap_or_else(|| Err(no_connection("no connection in time")))?;
        match wire.is_blocked() {
            Some(reason) => Err(failure::blocked(&reason)),
            None => Ok(wire),
        }
    }

    /// Sends these, which have the form of AMQP: those of each exchange on a channel of their own, as the broker ends the
    /// channel of whoever names an exchange that it does not have.
    async fn send(&self, parcels: &[Parcel]) -> Vec<Outcome> {
        let (begin_until, end) = self.ends();
        let wire = match self.wire(begin_until).await {
            Ok(wire) => wire,
            Err(failure) => return vec![Err(failure); parcels.len()],
        };
        let mut exchanges: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, parcel) in parcels.iter().enumerate() {
            exchanges.entry(parcel.exchange.as_str()).or_default().push(place);
        }
        let groups: Vec<Vec<usize>> = exchanges.into_values().collect();
        let each = (0..groups.len()).map(|group| {
            let own: Vec<&Parcel> = groups[group].iter().map(|place| &parcels[*place]).collect();
            let wire = &wire;
            async move { self.send_to_one(wire, &own, end).await }.boxed()
        });
        let answers = join_all(each).await;
        let mut outcomes = vec![Err(no_answer("RabbitMQ left it unanswered")); parcels.len()];
        for (answers, places) in answers.into_iter().zip(groups) {
            for (place, outcome) in places.into_iter().zip(answers) {
                outcomes[place] = outcome;
            }
        }
        outcomes
    }

    async fn send_to_one(&self, wire: &Wire, parcels: &[&Parcel], end: Monotonic) -> Vec<Outcome> {
        let channel = self.within(end, wire.channel()).await;
        let channel = match channel.unwrap_or_else(|| Err(no_connection("no channel in time"))) {
            Ok(channel) => channel,
            Err(failure) => {
                self.link.drop_wire(wire).await;
                return vec![Err(failure); parcels.len()];
            }
        };
        let mut batch = Batch::new(parcels);
        if self.within(end, batch.publish(wire, &channel)).await.is_none() {
            // Whatever hangs there, the next call does not wait for it.
            self.link.drop_wire(wire).await;
        }
        let Answers { outcomes, is_clean, end } = batch.answers();
        if let Some(max) = end.as_ref().and_then(failure::size_max) {
            self.size_max.store(max, Ordering::Relaxed);
        }
        if is_clean {
            wire.keep(channel);
        }
        outcomes
    }

    /// Whether we could publish, and whether the exchange is there if there is only one.
    async fn ask(&self, wire: &Wire) -> Result<(), SinkError> {
        let channel = wire.channel().await?;
        if let Some(exchange) =
            self.settings.exchange.clone().filter(|exchange| !exchange.as_str().is_empty())
        {
            let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
            let asked = channel
                .exchange_declare(exchange, ExchangeKind::Direct, passive, FieldTable::default())
                .await;
            asked.map_err(|error| failure::unasked(&error))?;
        }
        wire.keep(channel);
        Ok(())
    }
}

impl RabbitmqSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let size_max = self.size_max.load(Ordering::Relaxed);
        let (mut parcels, mut faults) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for delivery in batch {
            let parcel = Parcel::of(delivery, &self.settings, size_max);
            faults.push(parcel.map(|parcel| parcels.push(parcel)).err());
        }
        let mut sent = if parcels.is_empty() { Vec::new() } else { self.send(&parcels).await }.into_iter();
        let missing = || Err(no_answer("RabbitMQ left it unanswered"));
        let each = faults.into_iter();
        each.map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err)).collect()
    }
}

#[async_trait]
impl Sink for RabbitmqSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, if need be, and opens a channel. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let wire = self.wire(begin_until).await?;
        let asked = self.within(end, self.ask(&wire)).await;
        let Some(asked) = asked else {
            self.link.drop_wire(&wire).await;
            return Err(no_connection("no answer in time"));
        };
        asked
    }
}
