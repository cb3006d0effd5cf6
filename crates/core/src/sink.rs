//! The port through which messages leave.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{Invalid, Outcome, StoredMessage};

/// One message on its way out.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What to deliver. Its id travels as `duly-id`, its due time as `duly-due`.
    pub message: StoredMessage,
    /// The number of this try, from 1; travels as `duly-attempt`.
    pub attempt: u32,
    /// The right by which it is delivered, where several nodes share a store.
    pub fence: Option<Fence>,
}

impl Delivery {
    /// A try of a store that no other node delivers from.
    pub fn new(message: StoredMessage, attempt: u32) -> Self {
        Self { message, attempt, fence: None }
    }
}

/// The right of a node to deliver part of a lane.
///
/// A target that can remember the highest token of each scope refuses a lower one: it comes from a node that has lost its
/// right and does not know it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// What the right is for: one lane in one shard of one store. At most one node at a time has it.
    pub scope: Arc<str>,
    /// Grows whenever the right goes to another node.
    pub token: u64,
}

/// What became of one message: the target's proof, or why not.
pub type DeliveryResult = Result<String, SinkError>;

/// Takes the outcomes of one call, each as soon as it is known.
///
/// The first outcome of a message stands; a later one, or one of an index outside the batch, changes nothing. A message
/// without an outcome when the call ends is an unknown one.
pub struct Outcomes<'a> {
    report: &'a (dyn Fn(usize, DeliveryResult) + Send + Sync),
}

impl<'a> Outcomes<'a> {
    /// Hands every outcome to `report`, with the index of its message in the batch.
    pub fn new(report: &'a (dyn Fn(usize, DeliveryResult) + Send + Sync)) -> Self {
        Self { report }
    }

    /// The outcome of the message at `index` is known.
    pub fn report(&self, index: usize, result: DeliveryResult) {
        (self.report)(index, result);
    }

    /// The outcomes of a whole batch are known, in its order.
    pub fn report_all(&self, results: impl IntoIterator<Item = DeliveryResult>) {
        results.into_iter().enumerate().for_each(|(index, result)| self.report(index, result));
    }
}

/// Where messages go.
///
/// The contract, each line proved by the case of that name in `testkit::sink`:
/// - `one_outcome_per_message_in_order`: the answer has as many entries as the batch.
/// - `ok_means_the_target_has_it`: `Ok` only after the target's positive acknowledgement.
/// - `a_refusal_hurts_no_neighbour`: one bad message fails alone, as `Refused`.
/// - `every_field_arrives`: id, due time, attempt, topic, tag, key, properties and a body of any bytes.
/// - `any_body_arrives_unchanged`: empty, of each kind, and as large as the limits allow.
/// - `unicode_arrives_unchanged`: in body, tag, key and properties.
/// - `a_large_batch_arrives_whole`: a thousand in one call.
/// - `the_same_message_again_is_no_failure`: a second try of what did arrive is acknowledged too.
/// - `a_probe_delivers_nothing`: and succeeds when the target is there.
/// - `an_absent_target_is_unreachable_until_it_returns`: then the same sink delivers again.
/// - `calls_at_the_same_time_do_not_mix`: every outcome belongs to its own message.
/// - `a_call_given_up_leaves_the_sink_usable`: the scheduler drops a call whose time is over.
/// - `outcomes_are_reported_as_they_become_known`: a slow message delays no other of its call.
/// - `a_silent_destination_holds_up_no_other`: and one that never answers neither.
/// - `a_forbidden_destination_fails_alone`: as `Denied`.
/// - `a_full_destination_is_throttled_alone`: as `Throttled`, about the destination.
/// - A sink classifies and never decides: it neither retries a message nor drops it.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Delivers a batch and reports each message's outcome when it is known: a slow message holds up no other.
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>);

    /// Delivers a batch and waits for all of it: the outcomes in the order of the messages.
    async fn deliver(&self, batch: &[Delivery]) -> Vec<DeliveryResult> {
        let results = Mutex::new(vec![None; batch.len()]);
        let report = |index: usize, result: DeliveryResult| {
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot @ None) = results.get_mut(index) {
                *slot = Some(result);
            }
        };
        self.deliver_each(batch, &Outcomes::new(&report)).await;
        let missing =
            || Err(SinkError::new(SinkErrorKind::Unknown, "the sink gave no outcome for this message"));
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// Where inside the target the message goes: a topic, exchange and routing key, queue, stream or URL origin.
    ///
    /// Messages to one destination share its pacing and its breaker; a destination that is silent, full or forbidden holds
    /// up no other of the same sink. Asks the target nothing.
    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        Cow::Borrowed(message.topic.as_str())
    }

    /// Whether the target could take messages now, without delivering one.
    async fn probe(&self) -> Result<(), SinkError>;

    /// Whether the sink can take this message at all: its topic, its properties, its body. Asked before one is accepted, so that
    /// what it would refuse for ever is refused at once; asks the target nothing.
    fn check(&self, _message: &StoredMessage) -> Result<(), Invalid> {
        Ok(())
    }

    /// The store has recorded that these were delivered: they will not be tried again, and what the sink keeps to know a
    /// second try by may go.
    ///
    /// A courtesy and no promise: it does not come if the process ends first, and nothing waits for it.
    async fn settled(&self, _delivered: &[Delivery]) {}
}

/// Why a delivery did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {detail}")]
#[non_exhaustive]
pub struct SinkError {
    /// What the scheduler does next.
    pub kind: SinkErrorKind,
    /// The target's words.
    pub detail: String,
    /// When the target wants to be asked again.
    pub retry_after: Option<Duration>,
    /// How much of the target it is about.
    pub scope: ErrorScope,
}

/// How much of a target an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ErrorScope {
    /// All of it: the connection, the credentials, the broker.
    #[default]
    Target,
    /// The message's [destination](Sink::destination) alone; others go on.
    Destination,
}

/// Why a delivery did not happen, sorted by what the scheduler does next.
///
/// A classifier dead-letters nothing that it cannot name: what is unknown is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SinkErrorKind {
    /// Nothing reached the target. Try again.
    Unreachable,
    /// The target is alive and says "slower". Try again, later.
    Throttled,
    /// No answer in time: the message may have arrived. Try again, same id.
    Unknown,
    /// The target will never take this message. Dead-letter it.
    Refused,
    /// The target will never take any message. Pause the lane until a probe says otherwise.
    Misconfigured,
    /// The destination takes nothing from us as things are (no permission, no queue behind it), and has not got the message.
    /// Try again by the message's policy; each try counts. Always about the destination.
    Denied,
}

impl SinkErrorKind {
    /// The same, as the end of a try.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Unreachable => Outcome::Unreachable,
            Self::Throttled => Outcome::Throttled,
            Self::Unknown => Outcome::Unknown,
            Self::Refused => Outcome::Refused,
            Self::Misconfigured => Outcome::Misconfigured,
            Self::Denied => Outcome::Denied,
        }
    }
}

impl SinkError {
    /// An error of `kind` with the target's words.
    pub fn new(kind: SinkErrorKind, detail: impl Into<String>) -> Self {
        let scope = match kind {
            SinkErrorKind::Denied => ErrorScope::Destination,
            _ => ErrorScope::Target,
        };
        Self { kind, detail: detail.into(), retry_after: None, scope }
    }

    /// The target will never take this message: what [`Sink::check`] says, of one that was accepted under other settings.
    pub fn never(fault: &Invalid) -> Self {
        Self::new(SinkErrorKind::Refused, fault.detail.as_str())
    }

    /// The same, of a target that wants to be asked again after so long.
    #[must_use]
    pub fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The same, about so much of the target.
    #[must_use]
    pub fn about(mut self, scope: ErrorScope) -> Self {
        self.scope = scope;
        self
    }

    /// The same, about the message's destination alone.
    #[must_use]
    pub fn at_destination(mut self) -> Self {
        self.scope = ErrorScope::Destination;
        self
    }
}
