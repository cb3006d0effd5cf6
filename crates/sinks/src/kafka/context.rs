//! Callbacks of the library: the outcome of each record, errors of connections, and log lines.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rdkafka::{
    ClientContext, Message as _, client::DefaultClientContext, config::RDKafkaLogLevel, error::KafkaError,
    message::DeliveryResult, producer::ProducerContext, types::RDKafkaErrorCode,
};
use tokio::sync::{mpsc, watch};

use super::failure::{Persistence, is_final};

/// The debug context whose log says when a batch is put back into the queue of its partition. It logs a few lines for a failure, and none
/// otherwise.
pub(super) const DEBUG: &str = "eos";
/// Partitions of which it is remembered that a batch went back. With more, all count as such.
const RETURNED_MAX: usize = 10_000;

/// The opaque of a record: the library returns it with the report.
pub(super) struct RecordOpaque {
    /// The message's place in its call.
    pub(super) index: usize,
    pub(super) reports: mpsc::UnboundedSender<RecordReport>,
    /// When it was handed over, by [`Context::moment`].
    pub(super) moment: u64,
}

/// The outcome of a record.
pub(super) struct RecordReport {
    pub(super) index: usize,
    /// Partition and offset, or why not.
    pub(super) result: Result<String, (KafkaError, Persistence)>,
}

/// Receives the callbacks of a producer.
#[derive(Clone, Default)]
pub(super) struct Context(Arc<ConnectionState>);

#[derive(Default)]
struct ConnectionState {
    errors: watch::Sender<Errors>,
    all_down: AtomicBool,
    returned: Returned,
}

/// Errors of connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Errors {
    pub(super) last: Option<String>,
    /// An error that does not pass by itself. The producer is replaced, unless a broker has answered since.
    pub(super) final_error: Option<String>,
}

impl Context {
    /// A producer that is not idempotent drains nothing, and says nothing: whatever it gave up may have arrived.
    pub(super) fn new(is_idempotent: bool) -> Self {
        let context = Self::default();
        if !is_idempotent {
            context.0.returned.all.store(u64::MAX, Ordering::SeqCst);
        }
        context
    }

    /// Orders hand-overs and returned batches.
    pub(super) fn moment(&self) -> u64 {
        self.0.returned.clock.load(Ordering::SeqCst)
    }

    /// Whether the library has a connection to no broker.
    pub(super) fn is_all_down(&self) -> bool {
        self.0.all_down.load(Ordering::SeqCst)
    }

    /// A broker answered.
    pub(super) fn answered(&self) {
        self.0.all_down.store(false, Ordering::SeqCst);
        // Runs for every record: a read is cheaper than a write.
        if self.0.errors.borrow().final_error.is_some() {
            self.0.errors.send_modify(|errors| errors.final_error = None);
        }
    }

    pub(super) fn errors(&self) -> &watch::Sender<Errors> {
        &self.0.errors
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let is_all_down = code == Some(RDKafkaErrorCode::AllBrokersDown);
        if is_all_down {
            self.0.all_down.store(true, Ordering::SeqCst);
        }
        self.0.errors.send_modify(|errors| {
            if code.is_some_and(|code| is_final(code, reason)) {
                errors.final_error = Some(reason.to_owned());
            }
            // That all are down is known from what was heard of each.
            if !is_all_down || errors.last.is_none() {
                errors.last = Some(reason.to_owned());
            }
        });
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        match level {
            RDKafkaLogLevel::Debug => self.0.returned.on_log(facility, line),
            _ => DefaultClientContext.log(level, facility, line),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<RecordOpaque>;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: Box<RecordOpaque>) {
        let result = match result {
            Ok(record) => {
                self.answered();
                Ok(format!("{}:{}", record.partition(), record.offset()))
            }
            Err((error, record)) => {
                let persistence =
                    self.0.returned.persistence(record.topic(), record.partition(), opaque.moment);
                Err((error.clone(), persistence))
            }
        };
        // The call may have been dropped.
        let _ = opaque.reports.send(RecordReport { index: opaque.index, result });
    }
}

/// Of which partitions the library has put a batch back that it had sent, or had begun to send.
///
/// The library keeps for every record whether a broker may have it, and the binding has no safe way to ask for that. But an
/// idempotent producer drains a partition before it sends a batch again, and says so: a record that was handed over after
/// its partition was last drained, and ran out of time in the queue, was never sent.
#[derive(Default)]
struct Returned {
    clock: AtomicU64,
    /// Partitions, each with the moment.
    partitions: Mutex<HashMap<(String, i32), u64>>,
    /// Up to here, all partitions count.
    all: AtomicU64,
}

impl Returned {
    fn on_log(&self, facility: &str, line: &str) {
        let words = match facility {
            "DRAIN" => " beginning partition drain",
            // The batch is of an earlier session of the producer: it is not sent again at all.
            "ERRPID" => " PID mismatch",
            _ => return,
        };
        let Some((partition, _)) = line.split_once(words) else { return };
        let moment = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        match parse_partition(partition) {
            Some(partition) if partitions.len() < RETURNED_MAX || partitions.contains_key(&partition) => {
                partitions.insert(partition, moment);
            }
            _ => {
                partitions.clear();
                self.all.fetch_max(moment, Ordering::SeqCst);
            }
        }
    }

    /// Whether a broker may have a record that was handed over at `moment`.
    fn persistence(&self, topic: &str, partition: i32, moment: u64) -> Persistence {
        // No partition was assigned.
        if partition < 0 {
            return Persistence::No;
        }
        let partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let last = partitions.get(&(topic.to_owned(), partition)).copied().unwrap_or_default();
        if last.max(self.all.load(Ordering::SeqCst)) > moment {
            Persistence::Possibly
        } else {
            Persistence::No
        }
    }
}

/// `… orders [3]`
fn parse_partition(text: &str) -> Option<(String, i32)> {
    let (topic, number) = text.strip_suffix(']')?.rsplit_once(" [")?;
    let topic = topic.rsplit(' ').next().filter(|topic| !topic.is_empty())?;
    Some((topic.to_owned(), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_until_a_broker_answers() {
        let context = Context::new(true);
        let error = KafkaError::Global(RDKafkaErrorCode::Authentication);
        context.error(error, "SASL authentication error: Authentication failed");
        assert!(context.errors().borrow().final_error.is_some());
        context.answered();
        assert_eq!(context.errors().borrow().final_error, None);
        assert!(context.errors().borrow().last.is_some(), "words for the next failure");
    }

    const DRAIN: &str = "[thrd:main]: orders [3] beginning partition drain: drain before retrying";

    #[test]
    fn a_record_may_have_arrived_if_its_partition_was_drained_after_it_was_handed_over() {
        let returned = Returned::default();
        let before = returned.clock.load(Ordering::SeqCst);
        returned.on_log("DRAIN", DRAIN);
        let after = returned.clock.load(Ordering::SeqCst);
        assert_eq!(returned.persistence("orders", 3, before), Persistence::Possibly);
        assert_eq!(returned.persistence("orders", 3, after), Persistence::No);
        assert_eq!(returned.persistence("orders", 2, before), Persistence::No);
        assert_eq!(returned.persistence("orders", -1, before), Persistence::No);
    }

    #[test]
    fn a_batch_of_an_earlier_session_counts_and_other_lines_do_not() {
        let returned = Returned::default();
        returned.on_log(
            "DRAIN",
            "[thrd:main]: Beginning partition drain in state Assigned for PID{Id:1,Epoch:0}",
        );
        returned.on_log("MSGID", DRAIN);
        assert_eq!(returned.persistence("orders", 3, 0), Persistence::No);
        let line =
            "[thrd:a:9092/1]: a:9092/1: orders [3] PID mismatch: request PID{Id:1} != partition PID{Id:2}";
        returned.on_log("ERRPID", line);
        assert_eq!(returned.persistence("orders", 3, 0), Persistence::Possibly);
    }

    #[test]
    fn what_is_not_understood_counts_for_all_partitions() {
        let returned = Returned::default();
        returned.on_log("DRAIN", "orders beginning partition drain: x");
        assert_eq!(returned.persistence("other", 0, 0), Persistence::Possibly);
        assert_eq!(returned.persistence("other", 0, 1), Persistence::No);
    }
}
