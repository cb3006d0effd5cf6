#![doc = include_str!("docs.md")]

mod append;
mod config;
mod failure;
mod link;
mod settings;
mod slot;

use std::sync::Arc;

use async_trait::async_trait;
use duly_core::{Clock, Delivery, Invalid, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind, Topic};

use append::Append;
pub use config::RedisStreamsConfig;
use failure::{no_answer, no_connection};
use link::Link;
use settings::Settings;

/// Appends to Redis Streams.
pub struct RedisStreamsSink {
    link: Link,
    append: Append,
    settings: Settings,
    clock: Arc<dyn Clock>,
}

type Outcome = Result<String, SinkError>;

impl RedisStreamsSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        let link = Link::new(&settings)?;
        Ok(Self { link, append: Append::new(&settings), settings, clock })
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

    /// Sends these, which the stream may take for all that we know.
    async fn send(&self, batch: &[&Delivery]) -> Vec<Outcome> {
        let all = |error: SinkError| vec![Err(error); batch.len()];
        let (begin_until, end) = self.ends();
        let wire = match self.within(begin_until, self.link.wire()).await {
            Some(Ok(wire)) => wire,
            Some(Err(failure)) => return all(failure),
            None => return all(no_connection("no connection in time")),
        };
        let Some(answers) = self.within(end, self.append.send(wire.clone(), batch)).await else {
            // Whatever hangs there, the next call does not wait for it.
            self.link.drop_wire(&wire).await;
            return all(no_answer("no answer in time"));
        };
        if answers.iter().any(|answer| answer.as_ref().is_err_and(failure::is_the_wires)) {
            self.link.drop_wire(&wire).await;
        }
        answers.into_iter().map(|answer| answer.map_err(|error| failure::sorted(&error))).collect()
    }
}

impl RedisStreamsSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let checked: Vec<_> = batch.iter().map(append::check).collect();
        let fit: Vec<_> =
            batch.iter().zip(&checked).filter(|(_, fault)| fault.is_none()).map(|(each, _)| each).collect();
        if fit.is_empty() {
            return checked.into_iter().flatten().map(Err).collect();
        }
        let mut sent = self.send(&fit).await.into_iter();
        let missing = || Err(SinkError::new(SinkErrorKind::Unknown, "Redis left it unanswered"));
        checked
            .into_iter()
            .map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err))
            .collect()
    }
}

#[async_trait]
impl Sink for RedisStreamsSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, if need be, and asks whether scripts may be run. Nothing is written.
    async fn probe(&self) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let wire = self.within(begin_until, self.link.wire()).await;
        let wire = wire.unwrap_or_else(|| Err(no_connection("no connection in time")))?;
        let asked = self.within(end, wire.clone().ask_how_it_is(self.append.sha())).await;
        let asked = asked.unwrap_or_else(|| Err(no_connection("no answer to a ping in time")));
        if asked.is_err() {
            self.link.drop_wire(&wire).await;
        }
        asked
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), Invalid> {
        match append::reserved(topic.as_str()) {
            Some(detail) => Err(Invalid::new("reserved_topic", "topic", detail)),
            None => Ok(()),
        }
    }

    async fn settled(&self, delivered: &[Delivery]) {
        let (_, end) = self.ends();
        let forget = async {
            if let Ok(wire) = self.link.wire().await {
                self.append.forget(wire, delivered).await;
            }
        };
        // If it does not work out, the markers go by themselves in time.
        let _ = self.within(end, forget).await;
    }
}
