//! Classifies errors of Kafka and of the library.
//!
//! `docs.md` has the same as a table.

use duly_core::{ErrorScope, SinkError, SinkErrorKind};
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// Whether a broker may have a record whose time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It was never sent.
    No,
    /// It was sent, and no answer came.
    Possibly,
}

/// Classifies the error of a record. `is_all_down`: the library has a connection to no broker.
pub(super) fn classify(error: &KafkaError, persistence: Persistence, is_all_down: bool) -> SinkError {
    let (kind, scope) =
        error.rdkafka_error_code().map_or((SinkErrorKind::Unknown, ErrorScope::Target), |code| {
            match (by_code(code, persistence), is_all_down) {
                ((kind @ (SinkErrorKind::Unreachable | SinkErrorKind::Unknown), _), true) => {
                    (kind, ErrorScope::Target)
                }
                (sorted, _) => sorted,
            }
        });
    let error = SinkError::new(kind, describe(error, persistence));
    if scope == ErrorScope::Destination { error.at_destination() } else { error }
}

/// Codes that are not listed are unknown.
fn by_code(code: Code, persistence: Persistence) -> (SinkErrorKind, ErrorScope) {
    use ErrorScope::{Destination, Target};
    use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};
    match code {
        // The topic takes nothing from us; somebody may create it or give the right.
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicId
        | Code::TopicAuthorizationFailed
        | Code::PolicyViolation
        | Code::InvalidMessage
        | Code::UnsupportedForMessageFormat => (Denied, Destination),
        // This record, for ever. It was alone in its batch by then.
        Code::InvalidTopic
        | Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord => (Refused, Destination),
        // Our clock, or that of the broker, is wrong: no fault of the message.
        Code::InvalidTimestamp => (Misconfigured, Destination),
        Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication
        | Code::UnsupportedSASLMechanism
        | Code::SecurityDisabled => (Misconfigured, Target),
        // The library's queue is for all topics.
        Code::QueueFull => (Throttled, Target),
        Code::ThrottlingQuotaExceeded => (Throttled, Destination),
        // Said before anything was written.
        Code::NotEnoughReplicas
        | Code::ISRInsufficient
        | Code::NotLeaderForPartition
        | Code::LeaderNotAvailable
        | Code::ReplicaNotAvailable
        | Code::BrokerNotAvailable
        | Code::ListenerNotFound
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::KafkaStorageError
        | Code::InvalidDifferentRecord => (Unreachable, Destination),
        // The library gave up by itself.
        Code::MessageTimedOut => match persistence {
            Persistence::No => (Unreachable, Destination),
            Persistence::Possibly => (Unknown, Destination),
        },
        // The producer ended.
        Code::PurgeQueue if persistence == Persistence::No => (Unreachable, Target),
        // Written by the leader, and by too few others in time; or sent, and the connection was lost.
        Code::NotEnoughReplicasAfterAppend
        | Code::RequestTimedOut
        | Code::NetworkException
        | Code::BrokerTransportFailure
        | Code::OperationTimedOut => (Unknown, Destination),
        // The session of the producer is at its end, among others: no topic's fault.
        _ => (Unknown, Target),
    }
}

/// Classifies the error of a record that was not queued: nothing of it was sent.
pub(super) fn not_taken(error: &KafkaError, fatal: Option<(Code, String)>) -> SinkError {
    match classify_fatal(error, Persistence::No, fatal) {
        Some(SinkError { kind: SinkErrorKind::Misconfigured, detail, .. }) => {
            SinkError::misconfigured(detail)
        }
        Some(other) => SinkError::unreachable(other.detail),
        None => match classify(error, Persistence::No, false) {
            SinkError { kind: SinkErrorKind::Unknown, detail, .. } => SinkError::unreachable(detail),
            other => other,
        },
    }
}

/// Classifies the end of the producer, if that is the error: an idempotent producer ends when it can no longer detect duplicates. It
/// concerns no topic, and the next call creates another producer.
///
/// The library stores the reason before it purges unsent records, so the reason is known for each of them.
pub(super) fn classify_fatal(
    error: &KafkaError,
    persistence: Persistence,
    fatal: Option<(Code, String)>,
) -> Option<SinkError> {
    let otherwise = match (error.rdkafka_error_code(), persistence) {
        (Some(Code::Fatal), _) => SinkErrorKind::Unknown,
        (Some(Code::PurgeQueue), Persistence::No) if fatal.is_some() => SinkErrorKind::Unreachable,
        _ => return None,
    };
    let (kind, detail) = match fatal {
        Some((code, reason)) => match by_code(code, Persistence::Possibly) {
            (SinkErrorKind::Misconfigured, ErrorScope::Target) => (SinkErrorKind::Misconfigured, reason),
            _ => (otherwise, reason),
        },
        None => (otherwise, words(error)),
    };
    Some(SinkError::new(kind, format!("the producer ended: {detail}")))
}

/// Whether another record of the batch may be the reason. Nothing of the batch was written: the record is sent again alone.
pub(super) fn is_of_batch(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::MessageSizeTooLarge
                | Code::MessageBatchTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidRecord
                | Code::InvalidTimestamp
                | Code::InvalidDifferentRecord
        )
    )
}

/// Whether the brokers must be asked before anything is sent again, to any topic.
pub(super) fn is_of_brokers(error: &SinkError) -> bool {
    error.scope == ErrorScope::Target
        && matches!(
            error.kind,
            SinkErrorKind::Unknown | SinkErrorKind::Unreachable | SinkErrorKind::Misconfigured
        )
}

/// Whether the metadata of the topic must be requested before anything is sent there again: by itself the library would refresh it
/// minutes later.
pub(super) fn is_of_topic(error: &SinkError) -> bool {
    error.scope == ErrorScope::Destination
        && matches!(
            error.kind,
            SinkErrorKind::Denied
                | SinkErrorKind::Unreachable
                | SinkErrorKind::Unknown
                | SinkErrorKind::Misconfigured
        )
}

/// Whether an error of a connection does not pass by itself.
pub(super) fn is_final(code: Code, reason: &str) -> bool {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => true,
        Code::SSL => reason.contains("certificate"),
        _ => false,
    }
}

fn describe(error: &KafkaError, persistence: Persistence) -> String {
    let text = words(error);
    match (error.rdkafka_error_code(), persistence) {
        (Some(Code::MessageTimedOut), Persistence::No) => {
            format!(
                "{text}: never sent, the partition has no leader that can be reached or its leader is too slow"
            )
        }
        _ => text,
    }
}

pub(super) fn words(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => code.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
