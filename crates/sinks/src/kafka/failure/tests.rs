use super::*;

use ErrorScope::{Destination, Target};
use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};

fn error(code: Code) -> KafkaError {
    KafkaError::MessageProduction(code)
}

fn sorted(code: Code, persistence: Persistence) -> (SinkErrorKind, ErrorScope) {
    let error = classify(&error(code), persistence, false);
    (error.kind, error.scope)
}

#[test]
fn what_is_about_a_topic_never_stops_the_sink() {
    let denied = [
        Code::TopicAuthorizationFailed,
        Code::UnknownTopicOrPartition,
        Code::UnknownTopic,
        Code::UnknownPartition,
        Code::PolicyViolation,
        Code::InvalidMessage,
    ];
    for code in denied {
        assert_eq!(sorted(code, Persistence::No), (Denied, Destination), "{code}");
    }
    assert_eq!(sorted(Code::InvalidTimestamp, Persistence::No), (Misconfigured, Destination));
    assert_eq!(sorted(Code::ThrottlingQuotaExceeded, Persistence::No), (Throttled, Destination));
}

#[test]
fn what_is_about_one_record_for_ever_is_refused() {
    for code in [
        Code::InvalidTopic,
        Code::MessageSizeTooLarge,
        Code::MessageBatchTooLarge,
        Code::InvalidMessageSize,
        Code::InvalidRecord,
    ] {
        assert_eq!(sorted(code, Persistence::No).0, Refused, "{code}");
    }
}

#[test]
fn too_few_replicas_and_no_leader_cost_no_attempt() {
    for code in [
        Code::NotEnoughReplicas,
        Code::LeaderNotAvailable,
        Code::NotLeaderForPartition,
        Code::BrokerNotAvailable,
        Code::ReplicaNotAvailable,
        Code::FencedLeaderEpoch,
        Code::KafkaStorageError,
        Code::InvalidDifferentRecord,
        Code::MessageTimedOut,
    ] {
        assert_eq!(sorted(code, Persistence::No), (Unreachable, Destination), "{code}");
    }
}

#[test]
fn what_may_have_been_written_is_unknown_at_its_destination() {
    for code in [
        Code::MessageTimedOut,
        Code::RequestTimedOut,
        Code::NotEnoughReplicasAfterAppend,
        Code::BrokerTransportFailure,
        Code::NetworkException,
    ] {
        assert_eq!(sorted(code, Persistence::Possibly), (Unknown, Destination), "{code}");
    }
}

#[test]
fn without_any_broker_it_is_the_target_that_is_away() {
    let classified = |persistence| classify(&error(Code::MessageTimedOut), persistence, true);
    assert_eq!((classified(Persistence::No).kind, classified(Persistence::No).scope), (Unreachable, Target));
    assert_eq!(
        (classified(Persistence::Possibly).kind, classified(Persistence::Possibly).scope),
        (Unknown, Target)
    );
    let denied = classify(&error(Code::TopicAuthorizationFailed), Persistence::No, true);
    assert_eq!((denied.kind, denied.scope), (Denied, Destination));
}

#[test]
fn credentials_and_the_queue_of_the_library_are_about_the_whole_target() {
    for code in [
        Code::ClusterAuthorizationFailed,
        Code::SaslAuthenticationFailed,
        Code::Authentication,
        Code::UnsupportedSASLMechanism,
        Code::SecurityDisabled,
    ] {
        assert_eq!(sorted(code, Persistence::No), (Misconfigured, Target), "{code}");
    }
    assert_eq!(sorted(Code::QueueFull, Persistence::No), (Throttled, Target));
    assert_eq!(sorted(Code::PurgeQueue, Persistence::No), (Unreachable, Target));
}

#[test]
fn the_end_of_an_idempotent_producer_is_about_no_topic() {
    for code in [
        Code::OutOfOrderSequenceNumber,
        Code::UnknownProducerId,
        Code::InvalidProducerEpoch,
        Code::PurgeInflight,
        Code::PurgeQueue,
        Code::Fail,
    ] {
        assert_eq!(sorted(code, Persistence::Possibly), (Unknown, Target), "{code}");
    }
    let fatal = |code, reason: &str| Some((code, reason.to_owned()));
    let ended = error(Code::Fatal);
    let desynchronised = || fatal(Code::OutOfOrderSequenceNumber, "sequence desynchronization");
    let known = classify_fatal(&ended, Persistence::Possibly, desynchronised()).unwrap();
    assert_eq!((known.kind, known.scope), (Unknown, Target));
    assert!(known.detail.contains("desynchronization"), "{}", known.detail);
    let known = not_taken(&ended, desynchronised());
    assert_eq!((known.kind, known.scope), (Unreachable, Target), "nothing of it was sent");
    for known in [
        classify_fatal(
            &ended,
            Persistence::No,
            fatal(Code::ClusterAuthorizationFailed, "no IdempotentWrite"),
        )
        .unwrap(),
        not_taken(&ended, fatal(Code::ClusterAuthorizationFailed, "no IdempotentWrite")),
    ] {
        assert_eq!((known.kind, known.scope), (Misconfigured, Target));
    }
    // An error of another kind stays what it is beside a fatal one.
    assert!(classify_fatal(&error(Code::NotEnoughReplicas), Persistence::No, desynchronised()).is_none());
}

#[test]
fn a_record_that_was_never_sent_when_its_producer_ended_costs_no_attempt() {
    let purged = |persistence, code| {
        let fatal = Some((code, "why it ended".to_owned()));
        classify_fatal(&error(Code::PurgeQueue), persistence, fatal)
    };
    let known = purged(Persistence::No, Code::ClusterAuthorizationFailed).unwrap();
    assert_eq!((known.kind, known.scope), (Misconfigured, Target), "{known}");
    let known = purged(Persistence::No, Code::OutOfOrderSequenceNumber).unwrap();
    assert_eq!((known.kind, known.scope), (Unreachable, Target), "{known}");
    assert!(known.detail.contains("why it ended"), "{known}");
    assert!(purged(Persistence::Possibly, Code::OutOfOrderSequenceNumber).is_none());
    assert_eq!(sorted(Code::PurgeQueue, Persistence::Possibly), (Unknown, Target));
}

#[test]
fn what_the_library_does_not_take_was_not_sent() {
    let known = not_taken(&error(Code::State), None);
    assert_eq!((known.kind, known.scope), (Unreachable, Target));
    let known = not_taken(&error(Code::UnknownTopic), None);
    assert_eq!((known.kind, known.scope), (Denied, Destination));
}

#[test]
fn a_lost_answer_of_one_topic_makes_nobody_ask_for_the_others() {
    for code in
        [Code::MessageTimedOut, Code::RequestTimedOut, Code::NetworkException, Code::BrokerTransportFailure]
    {
        let lost = classify(&error(code), Persistence::Possibly, false);
        assert!(!is_of_brokers(&lost) && is_of_topic(&lost), "{code}");
        let all_down = classify(&error(code), Persistence::Possibly, true);
        assert!(is_of_brokers(&all_down), "{code}: no broker is there");
    }
}
