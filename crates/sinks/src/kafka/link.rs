//! The producer: made when it is needed, shared by all calls, made anew when it failed for good.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly_core::{SinkError, SinkErrorKind};
use rdkafka::{
    ClientConfig, ClientContext,
    error::KafkaError,
    producer::{FutureProducer, Producer as _},
    types::RDKafkaErrorCode,
};
use tokio::sync::watch;

use super::failure::{is_final, no_connection, words};

/// Topics that are known not to be there. Of more than these the library itself hears in time.
const MISSING_MAX: usize = 1000;

/// How a producer is made, and the one that stands.
pub(super) struct Link {
    client: ClientConfig,
    standing: Mutex<Option<Wire>>,
}

/// A producer and what is known of it.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) producer: FutureProducer<Ear>,
    ear: Ear,
    /// One at a time asks how the brokers are; a call that was given up may still be asking.
    asking: Arc<tokio::sync::Mutex<()>>,
    /// Whether the last that was heard from the brokers was good.
    well: Arc<AtomicBool>,
    /// Topics that were not there when something was last sent to them.
    missing: Arc<Mutex<BTreeSet<String>>>,
}

/// Hears what the library says beside the fate of records.
#[derive(Clone, Default)]
pub(super) struct Ear {
    heard: Arc<watch::Sender<Heard>>,
}

#[derive(Debug, Clone, Default)]
struct Heard {
    last: Option<String>,
    /// What no waiting will change. A producer that was told so is given up.
    verdict: Option<String>,
}

impl ClientContext for Ear {
    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        self.heard.send_modify(|heard| {
            if code.is_some_and(|code| is_final(code, reason)) {
                heard.verdict = Some(reason.to_owned());
            }
            // That all are down is known from what was heard of each.
            if code != Some(RDKafkaErrorCode::AllBrokersDown) || heard.last.is_none() {
                heard.last = Some(reason.to_owned());
            }
        });
    }
}

impl Link {
    pub(super) fn new(client: ClientConfig) -> Self {
        Self { client, standing: Mutex::default() }
    }

    /// A producer by which records may be sent: the brokers were well a moment ago, or are now. They are asked by `topic`, or
    /// by all that they have.
    pub(super) async fn wire(&self, topic: Option<&str>, within: Duration) -> Result<Wire, SinkError> {
        let wire = self.standing()?;
        if wire.well.load(Ordering::SeqCst) {
            return Ok(wire);
        }
        self.ask(&wire, topic, within).await?;
        Ok(wire)
    }

    /// Asks the brokers how they are, whatever was heard before.
    pub(super) async fn probe(&self, within: Duration) -> Result<(), SinkError> {
        let wire = self.standing()?;
        self.ask(&wire, None, within).await
    }

    /// Topics that were not there are asked for before anything is sent to them: they may be there now, and the library
    /// would know it minutes later.
    pub(super) async fn look_for(&self, wire: &Wire, topics: BTreeSet<&str>, within: Duration) {
        let missing: Vec<&str> = {
            let missing = wire.missing.lock().unwrap_or_else(PoisonError::into_inner);
            topics.into_iter().filter(|topic| missing.contains(*topic)).collect()
        };
        for topic in missing {
            if self.ask(wire, Some(topic), within).await.is_ok() {
                wire.missing.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
            }
        }
    }

    async fn ask(&self, wire: &Wire, topic: Option<&str>, within: Duration) -> Result<(), SinkError> {
        let asking = wire.asking.clone().lock_owned().await;
        wire.ear.heard.send_modify(|heard| heard.last = None);
        let mut heard = wire.ear.heard.subscribe();
        let (producer, topic) = (wire.producer.clone(), topic.map(str::to_owned));
        // The library has no other way to ask than to wait.
        let mut asked = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            producer.client().fetch_metadata(topic.as_deref(), within).map(|_| ())
        });
        let answer = tokio::select! {
            biased;
            answer = &mut asked => answer.unwrap_or(Err(KafkaError::Canceled)),
            _ = heard.wait_for(|heard| heard.verdict.is_some()) => Err(KafkaError::Canceled),
        };
        let verdict = wire.ear.heard.borrow().clone();
        match (answer, verdict) {
            (Ok(()), _) => {
                wire.well.store(true, Ordering::SeqCst);
                Ok(())
            }
            (Err(_), Heard { verdict: Some(verdict), .. }) => {
                // It would go on trying, and locking the user out perhaps.
                self.give_up(wire);
                Err(SinkError::new(SinkErrorKind::Misconfigured, verdict))
            }
            (Err(error), _) if error.rdkafka_error_code().is_some_and(|code| is_final(code, "")) => {
                self.give_up(wire);
                Err(SinkError::new(SinkErrorKind::Misconfigured, words(&error)))
            }
            (Err(_), Heard { last: Some(last), .. }) => Err(no_connection(last)),
            (Err(error), _) => Err(no_connection(words(&error))),
        }
    }

    fn standing(&self) -> Result<Wire, SinkError> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wire) = &*standing
            && wire.producer.client().fatal_error().is_none()
        {
            return Ok(wire.clone());
        }
        let ear = Ear::default();
        let producer = self.client.create_with_context(ear.clone()).map_err(|error| {
            SinkError::new(SinkErrorKind::Misconfigured, format!("the library cannot be set up: {error}"))
        })?;
        let wire =
            Wire { producer, ear, asking: Arc::default(), well: Arc::default(), missing: Arc::default() };
        discard(standing.replace(wire.clone()));
        Ok(wire)
    }

    /// The next call makes another, unless one has taken its place.
    fn give_up(&self, wire: &Wire) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if standing.as_ref().is_some_and(|other| Arc::ptr_eq(&other.well, &wire.well)) {
            discard(standing.take());
        }
    }
}

impl Wire {
    /// This topic is not there.
    pub(super) fn misses(&self, topic: &str) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.len() < MISSING_MAX {
            missing.insert(topic.to_owned());
        }
    }

    /// Before anything is sent again, the brokers are asked how they are.
    pub(super) fn doubt(&self) {
        self.well.store(false, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        discard(self.standing.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The end of a producer waits for its threads: on one of its own, not on one that others need.
fn discard(wire: Option<Wire>) {
    if let Some(wire) = wire {
        std::thread::spawn(move || drop(wire));
    }
}
