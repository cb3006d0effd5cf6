//! What a message is.

use duly_core::{Delivery, SinkErrorKind, StoredMessage};
use testkit::servers::rocketmq::installed;

use crate::{fresh_topic, ids, message, one, shared, sink_to, to};

#[tokio::test]
async fn the_receipt_is_the_id_of_the_message_and_its_place_in_a_queue() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let keyed = |id: &str| {
        let key = Some("polygenelubricants".parse().unwrap());
        [Delivery::new(StoredMessage { key, ..message(&topic, id) }, 1)]
    };
    // Queue 0 is the one of this key, and its messages stand there one after the other.
    for n in 0..3 {
        let receipt = sink.deliver(&keyed(&format!("m{n}"))).await.remove(0).unwrap();
        let (id, place) = receipt.split_once(' ').unwrap();
        assert_eq!((id.len(), place), (32, &*format!("0:{n}")), "{receipt}");
    }
}

#[tokio::test]
async fn queues_take_turns() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    one(&sink, &topic, "first").await.unwrap();
    let batch: Vec<_> = (0..8).map(|n| to(&topic, &format!("m{n}"))).collect();
    let mut queues: Vec<_> =
        sink.deliver(&batch).await.into_iter().map(|outcome| outcome.unwrap()[33..34].to_owned()).collect();
    queues.sort_unstable();
    assert_eq!(queues, ["0", "0", "1", "1", "2", "2", "3", "3"]);
}

#[tokio::test]
async fn what_rocketmq_cannot_carry_is_refused_alone() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let with = |name: &str, value: &str| {
        let mut message = message(&topic, "bad");
        message.properties.set(name, value).unwrap();
        Delivery::new(message, 1)
    };
    let bad = [
        to("no topic!", "bad"),
        with("KEYS", "x"),
        with("__SHARDINGKEY", "x"),
        with("content-type", "x"),
        with("empty", ""),
    ];
    let mut batch = bad.to_vec();
    batch.push(to(&topic, "good"));
    let mut outcomes = sink.deliver(&batch).await;
    outcomes.pop().unwrap().unwrap();
    for (outcome, delivery) in outcomes.iter().zip(&bad) {
        assert_eq!(outcome.as_ref().unwrap_err().kind, SinkErrorKind::Refused, "{delivery:?}");
    }
    assert_eq!(ids(shared(), &topic).await, ["good"]);
}

#[tokio::test]
async fn a_refusal_is_in_the_brokers_words() {
    if !installed() {
        return;
    }
    let (sink, topic) = (sink_to(shared()), fresh_topic());
    let mut large = message(&topic, "large");
    large.body = duly_core::Body::bytes(vec![0; 5 * 1024 * 1024]);
    let outcomes = sink.deliver(&[to(&topic, "a"), Delivery::new(large, 1), to(&topic, "b")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused);
    assert!(error.detail.starts_with("MESSAGE_ILLEGAL the message is illegal"), "{}", error.detail);
    assert_eq!(ids(shared(), &topic).await, ["a", "b"]);
}

#[test]
fn topics_of_rocketmq_itself_are_refused_before_a_message_is_accepted() {
    let sink = crate::sink_with("127.0.0.1:1", "");
    let fault = |topic: &str| {
        let due = duly_core::Timestamp::default();
        let queue = duly_core::SinkName::parse("rocketmq").unwrap();
        let mut message =
            duly_core::StoredMessage::new("a".parse().unwrap(), queue, topic.parse().unwrap(), due);
        message.body = duly_core::Body::text("x");
        sink.check(&message).err().map(|fault| fault.code.as_str())
    };
    let system =
        ["SCHEDULE_TOPIC_XXXX", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "rmq_sys_x"];
    for topic in system.into_iter().chain(["%RETRY%group", "%DLQ%group", "no topic!", &"x".repeat(128)]) {
        assert_eq!(fault(topic), Some("bad_topic"), "{topic}");
    }
    for topic in ["orders", "MQ_INST_1%orders", "a-b_c|d", "BenchmarkTest"] {
        assert_eq!(fault(topic), None, "{topic}");
    }
}
