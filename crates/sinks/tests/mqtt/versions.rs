//! Version 3.1.1, which has no place for what goes beside a body.

use duly_core::SinkErrorKind;
use testkit::servers::mosquitto::{Mosquitto, installed};

use crate::{one, reader::Reader, sink_with, to};

#[tokio::test]
async fn by_version_3_1_1_topic_and_body_arrive() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    let mut reader = Reader::of(broker.port(), "orders/#");
    for qos in [1, 2] {
        let sink =
            sink_with(&broker.url(), &format!("version = '3.1.1'\nqos = {qos}\nrequest_timeout = '60s'"));
        sink.probe().await.unwrap();
        one(&sink, "orders/new", "a").await.unwrap();
        let batch: Vec<_> = (0..500).map(|n| to("orders/new", &format!("m{n}"))).collect();
        let outcomes = sink.deliver(&batch).await;
        let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_err()).collect();
        assert!(failed.is_empty(), "{} of {failed:?}", failed.len());
    }
    let read = reader.read();
    assert_eq!(read.len(), 1002);
    assert!(read.iter().all(|each| each.topic == "orders/new" && &each.body[..] == b"body"));
    assert!(read.iter().all(|each| each.user.is_empty() && each.content_type.is_none()));
    assert_eq!((read[0].qos, read[1001].qos), (1, 2));
}

#[tokio::test]
async fn what_would_be_lost_by_version_3_1_1_is_refused_unless_it_may_be() {
    if !installed() {
        return;
    }
    let broker = Mosquitto::single();
    let full = || {
        let (mut tag, mut key, mut property) = (to("orders", "t"), to("orders", "k"), to("orders", "p"));
        tag.message.tag = Some("paid".parse().unwrap());
        key.message.key = Some("7".parse().unwrap());
        property.message.properties.put("tenant", "a");
        [tag, key, property, to("orders", "bare")]
    };
    let sink = sink_with(&broker.url(), "version = '3.1.1'");
    let outcomes = sink.deliver(&full()).await;
    for outcome in &outcomes[..3] {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused);
        assert!(error.detail.contains("drop_headers"), "{}", error.detail);
    }
    assert!(outcomes[3].is_ok());
    let sink = sink_with(&broker.url(), "version = '3.1.1'\ndrop_headers = true");
    assert!(sink.deliver(&full()).await.iter().all(Result::is_ok));
}
