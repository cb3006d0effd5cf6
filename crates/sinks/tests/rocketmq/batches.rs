//! Messages that go together, at a real broker.

use std::collections::BTreeSet;

use duly_core::{Body, Delivery, SinkErrorKind, StoredMessage};
use serde_json::json;
use testkit::{
    servers::rocketmq::{Options, Rocketmq, installed},
    sink::Arrival,
};

use crate::{
    BREAKS, batch, fresh_topic, ids, message, one, reader,
    reader::{Reader, arrival, stored},
    shared, sink_to,
};

const QUERY_MESSAGE: i32 = 12;
const UPDATE_AND_CREATE_TOPIC: i32 = 17;
const VIEW_MESSAGE_BY_ID: i32 = 33;

/// A message to the one queue of this key, with a bit of everything.
fn full(topic: &str, n: usize) -> Delivery {
    let mut message = message(topic, &format!("{topic}-{n}"));
    message.key = Some("polygenelubricants".parse().unwrap());
    message.tag = n.is_multiple_of(2).then(|| "even".parse().unwrap());
    message.body = match n % 3 {
        0 => Body::text("十五分钟"),
        1 => Body::bytes(vec![0, 255, 1, 2]),
        _ => Body::json(&json!({ "n": n })).unwrap(),
    };
    message.properties.set("tenant", &format!("größe {n}")).unwrap();
    if n == 7 {
        // As much as a batch takes.
        (0..7).for_each(|m| message.properties.set(&format!("long-{m}"), &"x".repeat(4_000)).unwrap());
    }
    Delivery::new(message, 1)
}

/// A message of this many bytes, to the same queue.
fn sized(topic: &str, id: &str, bytes: usize) -> Delivery {
    let key = Some("polygenelubricants".parse().unwrap());
    Delivery::new(StoredMessage { key, body: Body::bytes(vec![b'x'; bytes]), ..message(topic, id) }, 1)
}

async fn read(servers: &Rocketmq, topic: &str) -> Vec<Arrival> {
    let (broker, topic) = (servers.broker(), topic.to_owned());
    tokio::task::spawn_blocking(move || reader::read(&broker, &topic)).await.unwrap()
}

#[tokio::test]
async fn a_batch_arrives_whole_and_in_its_order() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let batch: Vec<_> = (0..60).map(|n| full(&topic, n)).collect();
    let receipts: Vec<String> = sink.deliver(&batch).await.into_iter().map(Result::unwrap).collect();
    let there = read(shared(), &topic).await;
    assert_eq!(there.len(), batch.len());
    for (n, (arrival, delivery)) in there.iter().zip(&batch).enumerate() {
        let sent = Arrival::of(delivery);
        let own = |(name, _): &(&String, &String)| sent.properties.contains_key(*name);
        let properties =
            arrival.properties.iter().filter(own).map(|(name, value)| (name.clone(), value.clone()));
        assert_eq!(Arrival { properties: properties.collect(), ..arrival.clone() }, sent);
        assert!(receipts[n].ends_with(&format!(" 0:{n}")), "{}", receipts[n]);
        // What a broker adds to a message that came alone.
        assert!(!arrival.properties.contains_key("CLUSTER"), "{arrival:?}");
    }
    let keys: BTreeSet<_> = there.iter().map(|arrival| &arrival.properties["UNIQ_KEY"]).collect();
    assert_eq!(keys.len(), batch.len(), "consumers tell messages apart by it");
}

#[tokio::test]
async fn each_message_of_a_batch_is_found_by_its_receipt_and_its_keys() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let batch: Vec<_> = (0..10).map(|n| full(&topic, n)).collect();
    let outcomes = sink.deliver(&batch).await;
    // Alone, as the seventh try of a message goes.
    let alone = Delivery { attempt: 7, ..full(&topic, 10) };
    let last = sink.deliver(std::slice::from_ref(&alone)).await.remove(0);
    let there = read(shared(), &topic).await;
    assert_eq!(there.len(), 11);
    let broker = shared().broker();
    tokio::task::spawn_blocking(move || {
        let mut reader = Reader::to(&broker);
        for (arrival_there, outcome) in there.iter().zip(outcomes.into_iter().chain([last])) {
            let receipt = outcome.unwrap();
            let offset = u64::from_str_radix(&receipt[16..32], 16).unwrap();
            let (_, mut found) = reader.ask(VIEW_MESSAGE_BY_ID, json!({ "offset": offset.to_string() }));
            assert_eq!(&arrival(&mut found), arrival_there, "{receipt}");
            let keys = ["KEYS", "UNIQ_KEY"].map(|name| arrival_there.properties[name].clone());
            for (key, is_unique) in keys.into_iter().zip(["false", "true"]) {
                let asked = json!({ "topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0",
                    "endTimestamp": i64::MAX.to_string(), "_UNIQUE_KEY_QUERY": is_unique });
                let (header, mut found) = reader.ask(QUERY_MESSAGE, asked);
                assert_eq!(header["code"], 0, "{header}");
                assert_eq!(&arrival(&mut found), arrival_there, "{key}");
                assert!(found.is_empty(), "and no other has it");
            }
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn one_message_that_is_too_large_is_refused_alone_and_the_broker_learnt() {
    if !installed() {
        return;
    }
    let more = vec!["maxMessageSize=16384".to_owned()];
    let servers = Rocketmq::with(Options { makes_topics: true, more, ..Options::default() });
    let (sink, topic) = (sink_to(&servers), fresh_topic());
    let mut expected = Vec::new();
    for round in 0..2 {
        // All of them are far more than the broker takes at once, also without the large one.
        let mut batch: Vec<_> = (0..40).map(|n| sized(&topic, &format!("m{round}-{n:02}"), 1_000)).collect();
        expected.extend(batch.iter().map(|delivery| delivery.message.id.to_string()));
        batch.insert(17, sized(&topic, "large", 20_000));
        for (n, outcome) in sink.deliver(&batch).await.into_iter().enumerate() {
            match (n, outcome) {
                (17, Err(error)) => {
                    assert_eq!(error.kind, SinkErrorKind::Refused);
                    assert!(error.detail.starts_with("MESSAGE_ILLEGAL"), "{}", error.detail);
                }
                (n, outcome) => assert!(outcome.is_ok() && n != 17, "{n}: {outcome:?}"),
            }
        }
    }
    assert_eq!(ids(&servers, &topic).await, expected, "each once");
}

#[tokio::test]
async fn what_no_batch_may_have_goes_alone() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let with = |id: &str, count: usize| {
        let mut delivery = sized(&topic, id, 10);
        for n in 0..count {
            delivery.message.properties.set(&format!("long-{n}"), &"x".repeat(4_000)).unwrap();
        }
        delivery
    };
    // Seven and eight of these are what a broker takes; nine it refuses.
    let batch = [
        with("a", 0),
        with("b", 7),
        with("c", 8),
        with("d", 0),
        with("e", 9),
        with("f", 0),
        sized(&topic, "g", 300_000),
        Delivery { attempt: 2, ..with("h", 0) },
    ];
    let outcomes = sink.deliver(&batch).await;
    for (delivery, outcome) in batch.iter().zip(&outcomes) {
        let is_refused = matches!(outcome, Err(error) if error.kind == SinkErrorKind::Refused);
        assert_eq!(is_refused, delivery.message.id.as_str() == "e", "{outcome:?}");
        assert!(is_refused || outcome.is_ok(), "{outcome:?}");
    }
    assert_eq!(ids(shared(), &topic).await, ["a", "b", "c", "d", "f", "g", "h"]);
}

#[tokio::test]
async fn a_batch_without_an_answer_is_unknown_for_each_and_each_next_try_goes_alone() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    one(&sink, &topic, "first").await.unwrap();
    let batch = |attempt| -> Vec<_> {
        let each = |n| Delivery { attempt, ..sized(&topic, &format!("swallowed-{n}"), 10) };
        (0..5).map(each).collect()
    };
    let _alone = BREAKS.lock().await;
    // The connection of this batch alone.
    shared().proxy().cut_after(b"duly-id\x01swallowed-3", 1);
    for outcome in sink.deliver(&batch(1)).await {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Unknown, "it was sent: {}", error.detail);
    }
    for outcome in sink.deliver(&batch(2)).await {
        outcome.unwrap();
    }
    let there = read(shared(), &topic).await;
    let of = |attempt| there.iter().filter(move |arrival| arrival.attempt == attempt);
    assert_eq!((there.len(), of(2).count()), (11, 5), "each arrived twice");
    assert!(of(2).all(|arrival| arrival.properties.contains_key("CLUSTER")), "alone");
    let key = |arrival: &Arrival| arrival.properties["UNIQ_KEY"].clone();
    let keys: BTreeSet<_> = of(1).filter(|arrival| arrival.id.as_str() != "first").map(key).collect();
    assert_eq!(keys, of(2).map(key).collect::<BTreeSet<_>>(), "the copies have the same keys");
}

#[tokio::test]
async fn a_topic_that_keeps_whole_batches_has_each_message() {
    if !installed() {
        return;
    }
    let (sink, topic, broker) = (sink_to(shared()), fresh_topic(), shared().broker());
    let (name, address) = (topic.clone(), broker.clone());
    let make = move || {
        let fields = json!({ "topic": name, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "attributes": "+queue.type=BatchCQ" });
        let (made, _) = Reader::to(&address).ask(UPDATE_AND_CREATE_TOPIC, fields);
        assert_eq!(made["code"], 0, "{made}");
    };
    tokio::task::spawn_blocking(make).await.unwrap();
    let all: Vec<_> = (0..5).map(|n| sized(&topic, &format!("m{n}"), 10)).collect();
    for (n, outcome) in sink.deliver(&all).await.into_iter().enumerate() {
        let receipt = outcome.unwrap();
        assert!(receipt.ends_with(&format!(" 0:{n}")), "{receipt}");
    }
    let read = move || {
        let mut reader = Reader::to(&broker);
        reader.wait();
        let (next, mut there) = reader.pull(&topic, 0, 0);
        let (_, body, properties) = stored(&mut there);
        assert_eq!((next, &*properties["INNER_NUM"], there.len()), (5, "5", 0));
        let each = batch::read(&body).into_iter().enumerate();
        each.for_each(|(n, (_, own))| assert!(own.contains(&format!("duly-id\u{1}m{n}\u{2}")), "{own}"));
    };
    tokio::task::spawn_blocking(read).await.unwrap();
}
