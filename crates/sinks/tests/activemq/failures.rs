//! What a broker says instead of yes.

use duly_core::{Body, ErrorScope, SinkErrorKind};
use testkit::servers::activemq::{Activemq, installed, shared};

use crate::{failure, ids, one, sink_to, sink_with, to};

#[tokio::test]
async fn a_wrong_password_is_misconfigured_for_messages_and_probes() {
    if !installed() {
        return;
    }
    for who in ["duly:wrong@", "nobody:x@", ""] {
        let sink = sink_with(&format!("stomp://{who}127.0.0.1:{}", shared().port()), "");
        let error = sink.probe().await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{who}: {}", error.detail);
        assert!(error.detail.contains("password"), "{}", error.detail);
        assert_eq!(failure(&sink, "orders.x", "a").await, SinkErrorKind::Misconfigured);
    }
}

#[tokio::test]
async fn a_queue_that_may_not_be_written_is_denied_with_the_brokers_words_and_hurts_no_other() {
    if !installed() {
        return;
    }
    let sink = sink_to(shared());
    let queue = "orders.failures.rights";
    let outcomes = sink.deliver(&[to(queue, "a"), to("closed", "b"), to(queue, "c")]).await;
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination));
    assert!(error.detail.contains("not authorized to write"), "{}", error.detail);
    assert_eq!(ids(shared(), queue).await, ["a", "c"]);
}

#[tokio::test]
async fn properties_that_activemq_would_obey_are_refused() {
    if !installed() {
        return;
    }
    let sink = sink_to(shared());
    let queue = "orders.failures.reserved";
    for name in ["AMQ_SCHEDULED_DELAY", "JMSXGroupID", "expires", "persistent"] {
        let mut delivery = to(queue, "a");
        delivery.message.properties.put(name, "60000");
        let outcomes = sink.deliver(&[delivery, to(queue, name)]).await;
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused);
        assert!(error.detail.contains(name), "{}", error.detail);
        assert!(outcomes[1].is_ok());
    }
    assert_eq!(ids(shared(), queue).await.len(), 4);
}

#[tokio::test]
async fn a_message_that_the_broker_complains_of_without_naming_it_is_found_and_refused() {
    if !installed() {
        return;
    }
    let broker = Activemq::limited("?wireFormat.maxDataLength=1000");
    let sink = sink_to(&broker);
    let queue = "orders.culprit";
    let mut left: Vec<_> = (0..5).map(|n| to(queue, &format!("m{n}"))).collect();
    left[2].message.body = Body::bytes(vec![b'x'; 2000]);
    let mut refused = Vec::new();
    // Each round the sink knows more: first that somebody is to blame, then who.
    for _ in 0..4 {
        let outcomes = sink.deliver(&left).await;
        let mut outcomes = outcomes.into_iter();
        left.retain(|delivery| match outcomes.next().unwrap() {
            Ok(_) => false,
            Err(error) if error.kind == SinkErrorKind::Refused => {
                assert!(error.detail.contains("exceeded"), "{}", error.detail);
                refused.push(delivery.message.id.to_string());
                false
            }
            Err(error) => {
                assert!(matches!(error.kind, SinkErrorKind::Unknown | SinkErrorKind::Unreachable), "{error}");
                true
            }
        });
    }
    assert_eq!(refused, ["m2"]);
    assert!(left.is_empty(), "{left:?}");
    let mut there = ids(&broker, queue).await;
    there.sort_unstable();
    there.dedup();
    assert_eq!(there, ["m0", "m1", "m3", "m4"]);
}

#[tokio::test]
async fn whoever_speaks_no_stomp_is_unreachable() {
    let server = testkit::http::HttpServer::start(|_| testkit::http::Reply::status(204, ""));
    let port = server.url().rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let sink = sink_with(&format!("stomp://127.0.0.1:{port}"), "request_timeout = '5s'");
    assert_eq!(failure(&sink, "orders", "a").await, SinkErrorKind::Unreachable);
    assert_eq!(one(&sink, "a,b", "a").await.unwrap_err().kind, SinkErrorKind::Refused, "nobody is asked");
}
