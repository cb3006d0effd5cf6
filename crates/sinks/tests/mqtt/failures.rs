//! What a broker says instead of yes.

use duly_core::{Body, SinkErrorKind};
use testkit::servers::mosquitto::{Mosquitto, installed};

use crate::{failure, ids, one, reader::Reader, sink_to, sink_with, to};

#[tokio::test]
async fn a_wrong_password_is_misconfigured_for_messages_and_probes() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    for version in ["5", "3.1.1"] {
        for who in ["duly:wrong@", "nobody:x@", ""] {
            let url = format!("mqtt://{who}127.0.0.1:{}", broker.port());
            let sink = sink_with(&url, &format!("version = '{version}'"));
            let error = sink.probe().await.unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{who}: {}", error.detail);
            assert!(error.detail.contains("not authorized"), "{}", error.detail);
            assert_eq!(failure(&sink, "orders", "a").await, SinkErrorKind::Misconfigured);
        }
    }
}

#[tokio::test]
async fn a_topic_that_may_not_be_written_is_denied_with_the_brokers_words_and_hurts_no_other() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    let mut reader = Reader::of(broker.port(), "orders/#");
    for qos in [1, 2] {
        let sink = sink_with(&broker.url(), &format!("qos = {qos}"));
        let batch = [to("orders/a", "a"), to("closed/x", "b"), to("orders/b", "c")];
        // This broker closes the connection over it, and its answer gets lost with what was on its way. After that we are careful.
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[1].is_err());
        let outcomes = sink.deliver(&batch).await;
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Denied);
        assert!(error.detail.contains("not authorized (0x87)"), "{}", error.detail);
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        // From now on the topic has a connection of its own.
        for _ in 0..3 {
            let outcomes = sink.deliver(&batch).await;
            assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
            assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Denied);
        }
    }
    let there = ids(&mut reader);
    assert!(
        there.iter().filter(|id| *id == "c").count() >= 2 && !there.contains(&"b".to_owned()),
        "{there:?}"
    );
}

#[tokio::test]
async fn what_is_too_large_for_the_broker_is_refused_and_no_other() {
    if !installed() {
        return;
    }
    // The first limit is told to us as we connect, the second when it is met.
    for limit in ["max_packet_size 2000", "message_size_limit 2000"] {
        let broker = Mosquitto::with(limit);
        let sink = sink_to(&broker);
        let mut large = to("orders", "large");
        large.message.body = Body::bytes(vec![0; 3000]);
        let batch = [to("orders", "a"), large, to("orders", "b")];
        let mut outcomes = sink.deliver(&batch).await;
        if limit.starts_with("message") {
            outcomes = sink.deliver(&batch).await;
        }
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused, "{limit}: {}", error.detail);
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{limit}: {outcomes:?}");
    }
}

#[tokio::test]
async fn more_than_the_broker_takes_at_once_is_sent_bit_by_bit() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::with("max_inflight_messages 3");
    let sink = sink_to(&broker);
    let mut reader = Reader::of(broker.port(), "orders");
    let batch: Vec<_> = (0..100).map(|n| to("orders", &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(ids(&mut reader).len(), 100);
}

#[tokio::test]
async fn properties_and_topics_that_mqtt_has_no_place_for_are_refused() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    let sink = sink_to(&broker);
    for name in ["Content-Type", "duly-id"] {
        let mut delivery = to("orders", "a");
        delivery.message.properties.put(name, "x");
        let outcomes = sink.deliver(&[delivery, to("orders", name)]).await;
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused);
        assert!(error.detail.contains(name), "{}", error.detail);
        assert!(outcomes[1].is_ok());
    }
    for topic in ["orders/+", "orders/#", "$SYS/x", "$share/a/b"] {
        assert_eq!(failure(&sink, topic, "a").await, SinkErrorKind::Refused, "{topic}");
    }
    let receipt = one(&sink, "nobody/listens", "a").await.unwrap();
    assert!(receipt.contains("no matching subscribers"), "{receipt}");
}
