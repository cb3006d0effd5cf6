//! The port through which messages leave.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{Invalid, Outcome, StoredMessage};

/// One message to deliver.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The message. Its id travels as `duly-id`, its due time as `duly-due`.
    pub message: StoredMessage,
    /// The number of this attempt, from 1; travels as `duly-attempt`.
    pub attempt: u32,
    /// The fencing token of its shard, where several nodes share a store.
    pub fence: Option<Fence>,
}

impl Delivery {
    /// A delivery without a fencing token.
    pub fn new(message: StoredMessage, attempt: u32) -> Self {
        Self { message, attempt, fence: None }
    }
}

/// A fencing token: the right of a node to deliver part of a lane.
///
/// A target that remembers the highest token of each scope refuses lower ones: they come from a node that has lost its
/// right without knowing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The scope: one lane in one shard of one store. At most one node at a time has the right.
    pub scope: Arc<str>,
    /// Grows whenever another node gets the right.
    pub token: u64,
}

/// The result of one message: the target's acknowledgement, or the error.
pub type DeliveryResult = Result<String, SinkError>;

/// Collects the results of one call, each as soon as it is known.
///
/// The first result of a message counts; later ones, and those of an index outside the batch, are ignored. A message
/// without a result when the call ends is unknown.
pub struct Outcomes<'a> {
    report: &'a (dyn Fn(usize, DeliveryResult) + Send + Sync),
}

impl<'a> Outcomes<'a> {
    /// Passes every result to `report`, with the index of its message in the batch.
    pub fn new(report: &'a (dyn Fn(usize, DeliveryResult) + Send + Sync)) -> Self {
        Self { report }
    }

    /// Reports the result of the message at `index`.
    pub fn report(&self, index: usize, result: DeliveryResult) {
        (self.report)(index, result);
    }

    /// Reports the results of a whole batch, in order.
    pub fn report_all(&self, results: impl IntoIterator<Item = DeliveryResult>) {
        results.into_iter().enumerate().for_each(|(index, result)| self.report(index, result));
    }
}

/// Where messages go.
///
/// The contract, each line proved by the case of that name in `duly_conformance::sink`:
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
/// - `a_call_given_up_leaves_the_sink_usable`: the scheduler drops calls that time out.
/// - `outcomes_are_reported_as_they_become_known`: a slow message delays no other of its call.
/// - `a_silent_destination_holds_up_no_other`: also one that never answers.
/// - `a_forbidden_destination_fails_alone`: as `Denied`.
/// - `a_full_destination_is_throttled_alone`: as `Throttled`, about the destination.
/// - `a_server_killed_under_load_loses_nothing`: one of several; an outage refuses and denies no message. Run where a cluster runs.
/// - A sink classifies and never decides: it neither retries a message nor drops it.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Delivers a batch and reports each result when it is known: a slow message holds up no other.
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>);

    /// Delivers a batch and waits for all results, in the order of the messages.
    async fn deliver(&self, batch: &[Delivery]) -> Vec<DeliveryResult> {
        let results = Mutex::new(vec![None; batch.len()]);
        let report = |index: usize, result: DeliveryResult| {
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot @ None) = results.get_mut(index) {
                *slot = Some(result);
            }
        };
        self.deliver_each(batch, &Outcomes::new(&report)).await;
        let missing = || Err(SinkError::unknown("the sink gave no outcome for this message"));
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// The destination of a message inside the target: a topic, exchange and routing key, queue, stream or URL origin. A sink whose target has
    /// one destination returns one constant word.
    ///
    /// Messages to one destination share its slots and breaker; a destination that is silent, full or forbidden holds
    /// up no other. Makes no request.
    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        Cow::Borrowed(message.topic.as_str())
    }

    /// Checks whether the target accepts messages, without delivering one.
    async fn probe(&self) -> Result<(), SinkError>;

    /// Checks whether the sink can take this message at all: topic, properties, body. Called before a message is
    /// accepted, so that what would always be refused is refused at once. Makes no request.
    fn check(&self, _message: &StoredMessage) -> Result<(), Invalid> {
        Ok(())
    }

    /// The store has recorded these as delivered: they are not tried again, and the sink may drop what it kept to
    /// recognise a second attempt.
    ///
    /// Best effort: it is not called if the process ends first, and nothing waits for it.
    async fn settled(&self, _delivered: &[Delivery]) {}
}

/// Why a delivery failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {detail}")]
#[non_exhaustive]
pub struct SinkError {
    /// The kind, by what the scheduler does next.
    pub kind: SinkErrorKind,
    /// The error text of the target.
    pub detail: String,
    /// The wait that the target asked for.
    pub retry_after: Option<Duration>,
    /// Whether it concerns the target or the destination.
    pub scope: ErrorScope,
}

/// What an error concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ErrorScope {
    /// The whole target: connection, credentials, broker.
    #[default]
    Target,
    /// The message's [destination](Sink::destination); others go on.
    Destination,
}

/// Why a delivery failed, by what the scheduler does next.
///
/// Errors that a sink cannot classify are retried, never dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SinkErrorKind {
    /// Nothing reached the target. Try again.
    Unreachable,
    /// The target is overloaded. Try again later.
    Throttled,
    /// No answer in time: the message may have arrived. Try again with the same id.
    Unknown,
    /// The target will never take this message. Make it a dead letter.
    Refused,
    /// The target refuses every message. Stop the lane until a probe succeeds.
    Misconfigured,
    /// The destination accepts nothing (no permission, nothing behind it), and did not get the message. Try again by
    /// the message's policy; each attempt counts. Always concerns the destination.
    Denied,
}

impl SinkErrorKind {
    /// The outcome of an attempt that failed in this way.
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
    /// An error of `kind` with the target's error text.
    pub fn new(kind: SinkErrorKind, detail: impl Into<String>) -> Self {
        let scope = match kind {
            SinkErrorKind::Denied => ErrorScope::Destination,
            _ => ErrorScope::Target,
        };
        Self { kind, detail: detail.into(), retry_after: None, scope }
    }

    /// Nothing reached the target.
    pub fn unreachable(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Unreachable, detail)
    }

    /// The target is overloaded.
    pub fn throttled(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Throttled, detail)
    }

    /// The message may have arrived.
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Unknown, detail)
    }

    /// The target will never take this message.
    pub fn refused(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Refused, detail)
    }

    /// The target refuses every message.
    pub fn misconfigured(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Misconfigured, detail)
    }

    /// The destination accepts nothing. It concerns the destination only.
    pub fn denied(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Denied, detail)
    }

    /// A message that [`Sink::check`] refuses although it was accepted, under other settings.
    pub fn never(fault: &Invalid) -> Self {
        Self::refused(fault.detail.as_str())
    }

    /// Sets the wait that the target asked for.
    #[must_use]
    pub fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Sets what it concerns.
    #[must_use]
    pub fn about(mut self, scope: ErrorScope) -> Self {
        self.scope = scope;
        self
    }

    /// Makes it concern the destination only.
    #[must_use]
    pub fn at_destination(mut self) -> Self {
        self.scope = ErrorScope::Destination;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constructor_makes_its_kind_and_only_a_denial_is_about_the_destination() {
        use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};
        for (error, kind) in [
            (SinkError::unreachable("why"), Unreachable),
            (SinkError::throttled("why"), Throttled),
            (SinkError::unknown("why"), Unknown),
            (SinkError::refused("why"), Refused),
            (SinkError::misconfigured("why"), Misconfigured),
            (SinkError::denied("why"), Denied),
        ] {
            let scope = if kind == Denied { ErrorScope::Destination } else { ErrorScope::Target };
            let expected = SinkError { kind, detail: "why".to_owned(), retry_after: None, scope };
            assert_eq!(error, expected);
        }
    }
}
