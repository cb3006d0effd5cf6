//! What one topic says hurts no other.

use std::sync::Mutex;

use duly_core::{Delivery, ErrorScope, Outcomes, SinkErrorKind, StoredMessage};
use testkit::servers::kafka::{installed, shared};

use crate::{ids, message, one, reader, sink_to, sink_with, to, topic_of, until_taken};

#[tokio::test]
async fn a_topic_that_is_not_there_denies_its_messages_alone_until_somebody_makes_it() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (sink, topic) = (sink_to(kafka), topic_of(kafka, 1).await);
    let outcomes = sink.deliver(&[to(&topic, "good"), to("made-later", "early")]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
    assert!(error.detail.contains("Unknown topic"), "{}", error.detail);
    reader::make_topic(&kafka.address(), "made-later", 1, &[]).await;
    until_taken(&sink, "made-later", "late").await;
    assert_eq!(ids(kafka, "made-later").await, ["late"]);
}

#[tokio::test]
async fn a_message_is_reported_when_it_is_known_and_not_when_its_call_ends() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (sink, topic) = (sink_to(kafka), topic_of(kafka, 1).await);
    let order = Mutex::new(Vec::new());
    let report = |index: usize, _| order.lock().unwrap().push(index);
    let batch = [to("never-made", "slow"), to(&topic, "quick")];
    sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    assert_eq!(*order.lock().unwrap(), [1, 0], "the library waits for news of a topic that it does not know");
}

#[tokio::test]
async fn a_record_that_the_broker_finds_invalid_is_refused_and_its_batch_is_not() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let sink = sink_with(&kafka.address(), "request_timeout = '60s'");
    reader::make_topic(&kafka.address(), "compacted", 1, &[("cleanup.policy", "compact")]).await;
    let keyed = |id: &str| {
        Delivery::new(StoredMessage { key: Some(id.parse().unwrap()), ..message("compacted", id) }, 1)
    };
    // The library's first batch is of one record: it sends what it has.
    sink.deliver(&[keyed("first")]).await.remove(0).unwrap();
    let mut batch: Vec<_> = (0..100).map(|n| keyed(&format!("k{n}"))).collect();
    batch.insert(50, to("compacted", "no-key"));
    let outcomes = sink.deliver(&batch).await;
    let error = outcomes[50].as_ref().unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused, "{error}");
    let failed: Vec<_> = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(ids(kafka, "compacted").await.len(), 101);
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_no_fault_of_the_message() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let sink = sink_to(kafka);
    // Every record is too old that does not arrive within the millisecond.
    let settings = [("message.timestamp.before.max.ms", "0")];
    reader::make_topic(&kafka.address(), "punctual", 1, &settings).await;
    for n in 0..1000 {
        if let Err(error) = one(&sink, "punctual", &format!("m{n}")).await {
            assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
            assert_eq!(error.scope, ErrorScope::Destination);
            return;
        }
    }
    panic!("none was too old");
}
