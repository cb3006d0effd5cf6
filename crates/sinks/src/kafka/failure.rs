//! What Kafka and the way to it may answer instead of yes, sorted by what comes next.

use duly_core::{SinkError, SinkErrorKind};
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// Nothing was sent.
pub(super) fn no_connection(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unreachable, detail)
}

/// It may have arrived.
pub(super) fn no_answer(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unknown, detail)
}

/// The failure of a record that was handed to the library.
pub(super) fn sorted(error: &KafkaError) -> SinkError {
    let code = error.rdkafka_error_code();
    SinkError::new(code.map_or(SinkErrorKind::Unknown, by_code), words(error))
}

/// What is not named here, and what the library gave up by itself, is unknown.
fn by_code(code: Code) -> SinkErrorKind {
    match code {
        // Definite, and about this record or its topic.
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::InvalidTopic
        | Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => SinkErrorKind::Refused,
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication
        | Code::UnsupportedSASLMechanism
        | Code::SecurityDisabled => SinkErrorKind::Misconfigured,
        Code::QueueFull | Code::ThrottlingQuotaExceeded => SinkErrorKind::Throttled,
        // Said before anything was written.
        Code::NotEnoughReplicas | Code::NotLeaderForPartition | Code::LeaderNotAvailable => {
            SinkErrorKind::Unreachable
        }
        _ => SinkErrorKind::Unknown,
    }
}

/// Whether it was the batch of a partition that was too large, and each of its records may well fit alone.
pub(super) fn is_too_large(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(Code::MessageSizeTooLarge)
}

/// Whether the topic is not there, or is not known to be.
pub(super) fn is_no_topic(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::UnknownTopicOrPartition | Code::UnknownTopic))
}

/// Whether the way to the brokers must be looked at before anything is sent again.
pub(super) fn is_the_ways(error: &SinkError) -> bool {
    matches!(error.kind, SinkErrorKind::Unknown | SinkErrorKind::Misconfigured)
}

/// What the library heard beside any record, and what of it no waiting will change.
pub(super) fn is_final(code: Code, reason: &str) -> bool {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => true,
        Code::SSL => reason.contains("certificate"),
        _ => false,
    }
}

pub(super) fn words(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => code.to_string(),
        None => error.to_string(),
    }
}
