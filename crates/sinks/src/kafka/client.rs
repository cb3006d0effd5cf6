//! The producer: created on demand, shared by all calls, replaced after a fatal error.

use std::{
    collections::BTreeSet,
    mem,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly_core::{Delivery, SinkError};
use rdkafka::{
    ClientConfig,
    error::KafkaError,
    metadata::Metadata,
    producer::{Producer as _, ThreadedProducer},
    types::RDKafkaErrorCode,
};
use tokio::sync::mpsc;

use super::{
    context::{Context, Errors, RecordOpaque, RecordReport},
    failure::{
        Persistence, classify, classify_fatal, is_final, is_of_brokers, is_of_topic, not_taken, words,
    },
    record::record,
    settings::IDEMPOTENCE,
};

/// Maximum of topics whose metadata is requested before a message is sent. The library refreshes that of further ones by itself.
const UNVERIFIED_MAX: usize = 1000;
/// Requests to the brokers before they count as unreachable: the first broker may hang.
const ASKED_TIMES: u32 = 2;

/// The settings of producers, and the producer in use.
pub(super) struct Client {
    config: ClientConfig,
    current: Mutex<Option<Connection>>,
}

/// A producer and its state.
#[derive(Clone)]
pub(super) struct Connection {
    producer: Arc<DropAside<ThreadedProducer<Context>>>,
    context: Context,
    /// Held by whoever asks the brokers; a call that was dropped may still be asking.
    asking: Arc<tokio::sync::Mutex<()>>,
    /// Whether the brokers answered the last request.
    is_answering: Arc<AtomicBool>,
    /// Topics with an error since their metadata was last requested.
    unverified: Arc<Mutex<BTreeSet<String>>>,
}

impl Client {
    pub(super) fn new(config: ClientConfig) -> Self {
        Self { config, current: Mutex::default() }
    }

    /// A producer whose brokers answer. If their last request failed, they are asked for `topic` first.
    pub(super) async fn connection(&self, topic: &str, within: Duration) -> Result<Connection, SinkError> {
        let connection = self.current()?;
        if !connection.is_answering.load(Ordering::SeqCst) {
            self.ask(&connection, Some(topic), within).await?;
        }
        Ok(connection)
    }

    /// Requests the topics of the brokers, also if the last request succeeded.
    pub(super) async fn probe(&self, within: Duration) -> Result<(), SinkError> {
        let connection = self.current()?;
        self.ask(&connection, None, within).await.map(drop)
    }

    /// Requests the metadata of an unverified topic, which updates the library, too. Returns the number of its partitions.
    pub(super) async fn ask_topic(
        &self,
        connection: &Connection,
        topic: &str,
        within: Duration,
    ) -> Result<usize, SinkError> {
        let metadata = self.ask(connection, Some(topic), within).await?;
        connection.unverified.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
        Ok(metadata.topics().iter().find(|one| one.name() == topic).map_or(0, |one| one.partitions().len()))
    }

    async fn ask(
        &self,
        connection: &Connection,
        topic: Option<&str>,
        within: Duration,
    ) -> Result<Metadata, SinkError> {
        let asking = connection.asking.clone().lock_owned().await;
        connection.context.errors().send_modify(|errors| errors.last = None);
        let mut errors = connection.context.errors().subscribe();
        let (producer, topic) = (connection.producer.clone(), topic.map(str::to_owned));
        // The library has only a blocking call.
        let mut reply = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            let ask = || producer.client().fetch_metadata(topic.as_deref(), within / ASKED_TIMES);
            let is_silent = |error: &KafkaError| {
                matches!(
                    error.rdkafka_error_code(),
                    Some(RDKafkaErrorCode::OperationTimedOut | RDKafkaErrorCode::BrokerTransportFailure)
                )
            };
            // A broker that hangs is disconnected by then: ask another.
            (1..ASKED_TIMES).fold(ask(), |answer, _| match answer {
                Err(error) if is_silent(&error) => ask(),
                answer => answer,
            })
        });
        let answer = tokio::select! {
            biased;
            answer = &mut reply => answer.unwrap_or(Err(KafkaError::Canceled)),
            _ = errors.wait_for(|errors| errors.final_error.is_some()) => Err(KafkaError::Canceled),
        };
        let state = connection.context.errors().borrow().clone();
        match (answer, state) {
            (Ok(metadata), _) => {
                connection.is_answering.store(true, Ordering::SeqCst);
                connection.context.answered();
                Ok(metadata)
            }
            (Err(_), Errors { final_error: Some(final_error), .. }) => {
                // The producer would keep trying, and may lock the user out.
                self.give_up(connection);
                Err(SinkError::misconfigured(final_error))
            }
            (Err(error), _) if error.rdkafka_error_code().is_some_and(|code| is_final(code, "")) => {
                self.give_up(connection);
                Err(SinkError::misconfigured(words(&error)))
            }
            (Err(_), Errors { last: Some(last), .. }) => Err(SinkError::unreachable(last)),
            (Err(error), _) => Err(SinkError::unreachable(words(&error))),
        }
    }

    fn current(&self) -> Result<Connection, SinkError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &*current
            && connection.producer.client().fatal_error().is_none()
        {
            return Ok(connection.clone());
        }
        let context = Context::new(self.config.get(IDEMPOTENCE) == Some("true"));
        let producer = self
            .config
            .create_with_context(context.clone())
            .map_err(|error| SinkError::misconfigured(format!("the library cannot be set up: {error}")))?;
        let connection = Connection {
            producer: Arc::new(DropAside::new(producer)),
            context,
            asking: Arc::default(),
            is_answering: Arc::default(),
            unverified: Arc::default(),
        };
        *current = Some(connection.clone());
        Ok(connection)
    }

    /// The next call makes another, unless one has taken its place.
    fn give_up(&self, connection: &Connection) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|other| Arc::ptr_eq(&other.is_answering, &connection.is_answering)) {
            *current = None;
        }
    }
}

impl Connection {
    /// Queues a message in the library, which reports its outcome with `index`. An error: it was not queued.
    pub(super) fn hand_over(
        &self,
        index: usize,
        delivery: &Delivery,
        reports: &mpsc::UnboundedSender<RecordReport>,
    ) -> Result<(), SinkError> {
        let opaque = RecordOpaque { index, reports: reports.clone(), moment: self.context.moment() };
        self.producer.send(record(delivery, opaque)).map_err(|(error, _)| {
            let error = not_taken(&error, self.producer.client().fatal_error());
            self.record_failure(delivery.message.topic.as_str(), &error);
            error
        })
    }

    /// Classifies the error of a message to `topic`, and records it.
    pub(super) fn classify(&self, topic: &str, error: &KafkaError, persistence: Persistence) -> SinkError {
        let fatal = classify_fatal(error, persistence, self.producer.client().fatal_error());
        let error = fatal.unwrap_or_else(|| classify(error, persistence, self.context.is_all_down()));
        self.record_failure(topic, &error);
        error
    }

    /// Marks the brokers or the topic as unverified: they are asked before anything is sent again.
    pub(super) fn record_failure(&self, topic: &str, error: &SinkError) {
        if is_of_brokers(error) {
            self.is_answering.store(false, Ordering::SeqCst);
        }
        if is_of_topic(error) {
            let mut unverified = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
            if unverified.len() < UNVERIFIED_MAX {
                unverified.insert(topic.to_owned());
            }
        }
    }

    /// Whether the metadata of the topic must be requested first.
    pub(super) fn is_unverified(&self, topic: &str) -> bool {
        self.unverified.lock().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }
}

/// Drops its value on a separate thread. Dropping a producer joins its threads, which would block a runtime thread.
///
/// It holds one, until it is dropped.
struct DropAside<T: Send + 'static>(Vec<T>);

impl<T: Send + 'static> DropAside<T> {
    fn new(held: T) -> Self {
        Self(vec![held])
    }
}

impl<T: Send + 'static> Deref for DropAside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T: Send + 'static> Drop for DropAside<T> {
    fn drop(&mut self) {
        let held = mem::take(&mut self.0);
        // If no thread can be spawned, the closure is dropped here, with the value.
        let _ = std::thread::Builder::new().name("duly-kafka-drop".into()).spawn(move || drop(held));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn the_last_clone_of_a_producer_is_dropped_on_a_thread_of_its_own() {
        struct DropProbe(mpsc::Sender<thread::ThreadId>);
        impl Drop for DropProbe {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let (dropped_tx, dropped_rx) = mpsc::channel();
        let first = Arc::new(DropAside::new(DropProbe(dropped_tx)));
        let last = first.clone();
        drop(first);
        assert!(dropped_rx.try_recv().is_err(), "a clone is left");
        drop(last);
        assert_ne!(dropped_rx.recv().unwrap(), thread::current().id());
    }
}
