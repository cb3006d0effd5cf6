//! The sink into ActiveMQ Artemis, whose acceptors have no prefixes by default. The suite of all sinks runs against it, too.

use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::artemis::{installed, shared};

use crate::{
    one,
    reader::{Reader, drain},
    sink_with, to,
};

fn url() -> String {
    shared().url()
}

#[tokio::test]
async fn what_artemis_acknowledges_is_in_the_queue_of_that_name() {
    if !installed() {
        return;
    }
    let sink = sink_with(&url(), "request_timeout = '60s'");
    sink.probe().await.unwrap();
    let batch: Vec<_> = (0..50).map(|n| to("orders.in_queue", &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let port = shared().port();
    let there = tokio::task::spawn_blocking(move || drain(port, "orders.in_queue")).await.unwrap();
    let ids: Vec<_> = there.iter().map(|arrival| arrival.id.to_string()).collect();
    assert_eq!(ids, (0..50).map(|n| format!("m{n}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_topic_of_artemis_is_a_topic_if_the_configuration_says_so() {
    if !installed() {
        return;
    }
    let mut reader = Reader::to(shared().port());
    reader.send(
        "SUBSCRIBE\nid:0\nack:auto\ndestination:orders.topic\nsubscription-type:MULTICAST\nreceipt:r\n\n\0",
    );
    assert_eq!(reader.next().command, "RECEIPT");
    let sink = sink_with(&url(), "destination = 'topic'\nrequest_timeout = '60s'");
    one(&sink, "orders.topic", "a").await.unwrap();
    let frame = reader.next();
    assert_eq!(frame.command, "MESSAGE");
    assert_eq!(frame.arrival().id.as_str(), "a");
}

#[tokio::test]
async fn an_address_that_is_closed_full_or_missing_hurts_no_other() {
    if !installed() {
        return;
    }
    let sink = sink_with(&url(), "request_timeout = '60s'");
    one(&sink, "orders.full", "fills").await.unwrap();
    for (topic, kind) in [
        ("closed", SinkErrorKind::Denied),
        ("orders.missing", SinkErrorKind::Denied),
        ("orders.full", SinkErrorKind::Throttled),
    ] {
        let error = one(&sink, topic, "a").await.unwrap_err();
        assert_eq!((error.kind, error.scope), (kind, ErrorScope::Destination), "{topic}: {error}");
        // Artemis closes the connection over it. By now the sink knows, and sends it on one of its own.
        let outcomes =
            sink.deliver(&[to("orders.beside", "b"), to(topic, "c"), to("orders.beside", "d")]).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{topic}: {outcomes:?}");
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn a_wrong_password_is_misconfigured_at_artemis_too() {
    if !installed() {
        return;
    }
    let sink = sink_with(&format!("stomp://duly:wrong@127.0.0.1:{}", shared().port()), "");
    let error = sink.probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
}
