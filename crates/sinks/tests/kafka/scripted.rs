//! Answers that a broker gives only when it likes: librdkafka's own peer gives them when it is told to.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_core::{ErrorScope, Outcomes, Sink, SinkError, SinkErrorKind};
use futures_util::future::join_all;
use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey, RDKafkaRespErr, RDKafkaRespErr::*},
};
use testkit::servers::proxy::Proxy;
use tokio::sync::Notify;

use crate::{one, sink_with, to, until_taken};

use ErrorScope::{Destination, Target};
use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};

const TOPIC: &str = "orders";
/// What is not to be answered in a test.
const NEVER: Duration = Duration::from_secs(3600);
/// A call has so much time, in seconds: more than any answer takes, or as little as it takes to see that it ends.
const PATIENT: u32 = 120;
const SHORT: u32 = 6;
/// Peers at the same time: each has a few threads.
const PEERS: usize = 8;
/// The library sends a batch so often before it passes on what the broker said.
const SENT: usize = 4;
/// More often than anything is sent in a test.
const ALWAYS: usize = 1_000;

type Peer = MockCluster<'static, DefaultProducerContext>;

/// Brokers, and a sink to them. Each of the topics has one partition, which the broker at its place leads, from 1.
fn peer(topics: &[&str], seconds: u32) -> (Peer, Arc<dyn Sink>) {
    let brokers = topics.len().max(2);
    let peer = MockCluster::new(i32::try_from(brokers).unwrap()).unwrap();
    for (topic, leader) in topics.iter().zip(1..) {
        peer.create_topic(topic, 1, 1).unwrap();
        peer.partition_leader(topic, 0, Some(leader)).unwrap();
    }
    let sink = sink_with(&peer.bootstrap_servers(), &format!("request_timeout = '{seconds}s'"));
    (peer, sink)
}

/// What a request is answered, so many times.
type ScriptedError = (RDKafkaApiKey, RDKafkaRespErr, usize);
type Outcome = Result<String, SinkError>;

/// For each of these, the outcome of a message of which the requests are answered so, and that of the next, which gets no such
/// answer.
async fn answered(answers: &[ScriptedError]) -> Vec<(Outcome, Outcome)> {
    let mut outcomes = Vec::new();
    for some in answers.chunks(PEERS) {
        // Before any of them sends: to make one takes its time.
        let peers: Vec<_> = some
            .iter()
            .map(|(request, answer, times)| {
                let (peer, sink) = peer(&[TOPIC], if *times == ALWAYS { SHORT } else { PATIENT });
                peer.request_errors(*request, &vec![*answer; *times]);
                (*request, peer, sink)
            })
            .collect();
        let both = peers.iter().map(async |(request, peer, sink)| {
            let first = one(sink, TOPIC, "first").await;
            peer.clear_request_errors(*request);
            (first, until_known(sink).await)
        });
        outcomes.extend(join_all(both).await);
    }
    outcomes
}

/// The next message. What the library tries again of the first may be answered so once more.
async fn until_known(sink: &Arc<dyn Sink>) -> Outcome {
    until_taken(sink, TOPIC, "next").await;
    one(sink, TOPIC, "last").await
}

#[tokio::test]
async fn what_a_broker_answers_is_what_the_table_says() {
    let cases = [
        // About the topic; the library does not ask twice.
        (RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1, Denied, Destination),
        (RD_KAFKA_RESP_ERR_POLICY_VIOLATION, 1, Denied, Destination),
        (RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, 1, Denied, Destination),
        (RD_KAFKA_RESP_ERR_INVALID_MSG, SENT, Denied, Destination),
        (RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, 1, Throttled, Destination),
        (RD_KAFKA_RESP_ERR_LISTENER_NOT_FOUND, 1, Unreachable, Destination),
        (RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, 1, Unreachable, Destination),
        (RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH, 1, Unreachable, Destination),
        (RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, SENT, Unreachable, Destination),
        (RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, SENT, Unreachable, Destination),
        // The leader has it, or may have.
        (RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, SENT, Unknown, Destination),
        (RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, SENT, Unknown, Destination),
        (RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, 1, Unknown, Destination),
        (RD_KAFKA_RESP_ERR__TRANSPORT, ALWAYS, Unknown, Destination),
        // The library asks for another leader for as long as the message has time.
        (RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, ALWAYS, Unknown, Destination),
        (RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, ALWAYS, Unknown, Destination),
        (RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE, ALWAYS, Unknown, Destination),
        (RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, ALWAYS, Unknown, Destination),
        // Said twice: of the batch, and of the record that was sent alone.
        (RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, 2, Refused, Destination),
        (RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, 2, Refused, Destination),
        (RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, 2, Refused, Destination),
        (RD_KAFKA_RESP_ERR_INVALID_RECORD, 2, Refused, Destination),
        (RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, 2, Misconfigured, Destination),
        (RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, 1, Refused, Destination),
        // About everything.
        (RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, 1, Misconfigured, Target),
        (RD_KAFKA_RESP_ERR_SECURITY_DISABLED, 1, Misconfigured, Target),
        (RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, 1, Unknown, Target),
        // What the table does not name.
        (RD_KAFKA_RESP_ERR_UNKNOWN, 1, Unknown, Target),
        (RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, 1, Unknown, Target),
    ];
    let outcomes = answered(&cases.map(|(answer, times, ..)| (RDKafkaApiKey::Produce, answer, times))).await;
    let mut wrong = Vec::new();
    for ((answer, _, kind, scope), (first, next)) in cases.into_iter().zip(outcomes) {
        let is_so = first.as_ref().is_err_and(|error| (error.kind, error.scope) == (kind, scope));
        if !is_so || next.is_err() {
            wrong.push(format!("{answer:?}: {first:?}, not {kind:?} {scope:?}; next: {next:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_answer_that_passes_is_no_failure() {
    let cases = [
        (RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 3),
        (RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, 3),
        (RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, SENT - 1),
        (RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, SENT - 1),
        (RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, SENT - 1),
        // Of a batch, and not of the record that was sent alone.
        (RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, 1),
        (RD_KAFKA_RESP_ERR_INVALID_RECORD, 1),
        (RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, 1),
    ];
    let outcomes = answered(&cases.map(|(answer, times)| (RDKafkaApiKey::Produce, answer, times))).await;
    for ((answer, _), (first, _)) in cases.into_iter().zip(outcomes) {
        assert!(first.is_ok(), "{answer:?}: {first:?}");
    }
}

#[tokio::test]
async fn a_producer_that_ended_is_about_no_topic_and_the_next_call_makes_another() {
    let answers = [
        (RDKafkaApiKey::Produce, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1),
        (RDKafkaApiKey::InitProducerId, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, ALWAYS),
    ];
    for (kind, (first, next)) in [Unknown, Misconfigured].into_iter().zip(answered(&answers).await) {
        let error = first.unwrap_err();
        // A record that may have been sent before the producer ended is unknown, whatever ended it.
        let may_be_sent = error.kind == Unknown && error.to_string().contains("PurgeQueue");
        assert!(error.kind == kind || may_be_sent, "{error}");
        assert_eq!(error.scope, Target, "{error}");
        next.unwrap();
    }
}

#[tokio::test]
async fn what_finds_the_librarys_queue_full_is_throttled_and_nothing_of_it_is_sent() {
    /// As many as wait in the library at most.
    const WAITING: usize = 20_000;
    const MORE: usize = 50;
    let (peer, sink) = peer(&[TOPIC], PATIENT);
    one(&sink, TOPIC, "first").await.unwrap();
    peer.broker_round_trip_time(-1, NEVER).unwrap();
    let batch: Vec<_> = (0..WAITING + MORE).map(|n| to(TOPIC, &format!("m{n}"))).collect();
    let (reported, all) = (Mutex::new(Vec::new()), Notify::new());
    let report = |index: usize, result: Result<String, SinkError>| {
        let mut reported = reported.lock().unwrap();
        reported.push((index, result.unwrap_err()));
        if reported.len() == MORE {
            all.notify_one();
        }
    };
    let outcomes = Outcomes::new(&report);
    tokio::select! {
        biased;
        () = sink.deliver_each(&batch, &outcomes) => panic!("nothing was answered"),
        () = all.notified() => {}
    }
    for (index, error) in reported.lock().unwrap().iter() {
        assert!(*index >= WAITING, "{index}");
        assert_eq!((error.kind, error.scope), (Throttled, Target), "{error}");
    }
}

#[tokio::test]
async fn a_slow_broker_holds_up_no_report_of_another() {
    let (peer, sink) = peer(&["quick", "slow"], PATIENT);
    for topic in ["quick", "slow"] {
        one(&sink, topic, "first").await.unwrap();
    }
    peer.broker_round_trip_time(2, NEVER).unwrap();
    let batch: Vec<_> = (0..20).map(|n| to(["quick", "slow"][n % 2], &format!("m{n}"))).collect();
    let (reported, half) = (Mutex::new(Vec::new()), Notify::new());
    let report = |index: usize, result: Result<String, SinkError>| {
        let mut reported = reported.lock().unwrap();
        reported.push((index, result));
        if reported.len() == batch.len() / 2 {
            half.notify_one();
        }
    };
    let outcomes = Outcomes::new(&report);
    tokio::select! {
        biased;
        () = sink.deliver_each(&batch, &outcomes) => panic!("the slow ones are not known"),
        () = half.notified() => {}
    }
    for (index, result) in reported.lock().unwrap().iter() {
        assert!(index % 2 == 0 && result.is_ok(), "{index}: {result:?}");
    }
}

#[tokio::test]
async fn a_record_that_is_sent_again_alone_holds_up_no_report_of_its_call() {
    let (peer, _) = peer(&["turned", "other"], PATIENT);
    // Only those who find the brokers by this way can be kept from them: the producer of single records, which connects last.
    let servers = peer.bootstrap_servers();
    let (_, port) = servers.split(',').next().unwrap().rsplit_once(':').unwrap();
    let way = Proxy::to(port.parse().unwrap());
    let brokers = format!("127.0.0.1:{}", way.port());
    let sink = sink_with(&brokers, &format!("request_timeout = '{PATIENT}s'"));
    one(&sink, "turned", "first").await.unwrap();
    way.shut();
    // The other topic is new to the library: its record is sent after that of the first.
    peer.request_errors(RDKafkaApiKey::Produce, &[RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    peer.broker_round_trip_time(2, Duration::from_millis(200)).unwrap();
    let (reported, some) = (Mutex::new(Vec::new()), Notify::new());
    let report = |index: usize, result: Result<String, SinkError>| {
        reported.lock().unwrap().push((index, result));
        some.notify_one();
    };
    let (batch, outcomes) = ([to("turned", "a"), to("other", "b")], Outcomes::new(&report));
    let mut call = sink.deliver_each(&batch, &outcomes);
    tokio::select! {
        () = &mut call => panic!("there is no way to send it alone"),
        () = some.notified() => {}
    }
    assert!(matches!(&reported.lock().unwrap()[..], [(1, Ok(_))]), "{reported:?}");
    way.open();
    call.await;
    assert!(matches!(&reported.lock().unwrap()[..], [_, (0, Ok(_))]), "{reported:?}");
}
