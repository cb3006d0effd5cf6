//! What each failure is taken for.

use std::{sync::Arc, time::Duration};

use duly_core::{Body, ErrorScope, Properties, SinkErrorKind};
use duly_sinks::SinkConfig;
use lapin::types::{AMQPValue, FieldTable};
use testkit::servers::{
    proxy::Proxy,
    rabbitmq::{FEW, installed, shared},
};

use crate::{Reader, one, sink_with, to};

#[tokio::test]
async fn a_wrong_password_or_vhost_pauses_the_lane() {
    if !installed() {
        return;
    }
    let port = shared().port();
    for place in [format!("guest:wrong@127.0.0.1:{port}"), format!("guest:guest@127.0.0.1:{port}/nowhere")] {
        let sink = sink_with(&format!("amqp://{place}"), "");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
        assert!(!error.detail.contains("wrong"), "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
    sink_with(&shared().url(), "").probe().await.unwrap();
}

#[tokio::test]
async fn no_right_to_write_denies_one_exchange_and_hurts_no_other() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("allowed", "a").await;
    let (user, password) = FEW;
    let sink = sink_with(&format!("amqp://{user}:{password}@127.0.0.1:{}", shared().port()), "");
    one(&sink, "allowed/a", "a").await.unwrap();
    assert_eq!(reader.ids(&queue).await, ["a"]);
    let error = one(&sink, &queue, "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Denied, "{}", error.detail);
    assert_eq!(error.scope, ErrorScope::Destination);
    assert!(error.detail.contains("ACCESS_REFUSED"), "{}", error.detail);
    one(&sink, "allowed/a", "c").await.unwrap();
}

#[tokio::test]
async fn the_doctor_tells_a_user_that_may_not_publish_and_publishes_nothing() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("allowed", "duly").await;
    let inspect = async |user: &str, settings: &str| {
        let url = format!("amqp://{user}@127.0.0.1:{}", shared().port());
        let config: SinkConfig =
            toml::from_str(&format!("kind = 'rabbitmq'\nurl = '{url}'\n{settings}")).unwrap();
        let clock = Arc::new(duly::SystemClock::new().unwrap());
        config.inspect(clock, Duration::ZERO, &[]).await
    };
    let (user, password) = FEW;
    let few = format!("{user}:{password}");
    assert_eq!(inspect("guest:guest", "").await, []);
    assert_eq!(inspect("guest:guest", "exchange = 'allowed'").await, []);
    assert_eq!(inspect(&few, "exchange = 'allowed'").await, []);
    let findings = inspect(&few, "").await;
    assert!(findings.len() == 1 && findings[0].detail.contains("amq.default"), "{findings:?}");
    reader.internal_exchange("closed").await;
    let findings = inspect("guest:guest", "exchange = 'closed'").await;
    assert!(findings.len() == 1 && findings[0].remedy.contains("write permission"), "{findings:?}");
    assert!(reader.ids(&queue).await.is_empty(), "nothing was published");
}

#[tokio::test]
async fn what_no_queue_wants_is_denied_and_its_neighbours_arrive() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.queue().await;
    let sink = sink_with(&shared().url(), "");
    let nobody = |n: usize| n % 3 == 1;
    let topic = |n| if nobody(n) { "no-such-queue" } else { &queue };
    let batch: Vec<_> = (0..300).map(|n| to(topic(n), &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(_) => assert!(!nobody(n), "m{n}"),
            Err(error) => {
                assert!(nobody(n) && error.kind == SinkErrorKind::Denied, "m{n}: {error:?}");
                assert!(error.detail.contains("NO_ROUTE"), "{}", error.detail);
            }
        }
    }
    assert_eq!(reader.ids(&queue).await.len(), 200);
}

#[tokio::test]
async fn an_exchange_that_is_not_there_is_denied_and_hurts_no_other() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("there", "#").await;
    let sink = sink_with(&shared().url(), "");
    for round in 0..3 {
        let id = |n: usize| format!("r{round}-{n}");
        let batch =
            [to("there/a", &id(0)), to("not-there/a", &id(1)), to("there/b", &id(2)), to(&queue, &id(3))];
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok() && outcomes[3].is_ok(), "{outcomes:?}");
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Denied);
        assert!(error.detail.contains("no exchange 'not-there'"), "{}", error.detail);
    }
    assert_eq!(reader.ids(&queue).await.len(), 9);
    let one_exchange = sink_with(&shared().url(), "exchange = 'not-there'");
    let error = one_exchange.probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "a probe sees it, too: {}", error.detail);
    sink_with(&shared().url(), "exchange = 'there'").probe().await.unwrap();
}

#[tokio::test]
async fn a_full_queue_that_rejects_is_throttled() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let queue = reader.queue_with(arguments).await;
    let sink = sink_with(&shared().url(), "");
    let batch: Vec<_> = (0..20).map(|n| to(&queue, &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    let throttled = |error: &duly_core::SinkError| {
        error.kind == SinkErrorKind::Throttled && error.scope == ErrorScope::Destination
    };
    assert!(outcomes[0].is_ok() && outcomes[19].as_ref().is_err_and(throttled), "{outcomes:?}");
    assert!(!reader.ids(&queue).await.is_empty());
    one(&sink, &queue, "later").await.unwrap();
}

#[tokio::test]
async fn what_has_no_place_in_amqp_is_refused() {
    if !installed() {
        return;
    }
    let queue = Reader::shared().await.queue().await;
    let sink = sink_with(&shared().url(), "");
    for name in ["CC", "BCC", "Content-Type"] {
        let mut delivery = to(&queue, "a");
        let mut properties = Properties::default();
        properties.set(name, "x").unwrap();
        delivery.message.properties = properties;
        let outcomes = sink.deliver(&[delivery, to(&queue, name)]).await;
        let error = outcomes[0].as_ref().unwrap_err();
        assert!(error.kind == SinkErrorKind::Refused && error.detail.contains(name), "{error:?}");
        assert!(outcomes[1].is_ok());
    }
}

#[tokio::test]
async fn a_lost_confirm_is_unknown_and_the_same_id_again_is_taken() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.queue().await;
    let proxy = Proxy::to(shared().port());
    let url = format!("amqp://guest:guest@127.0.0.1:{}", proxy.port());
    let sink = sink_with(&url, "request_timeout = '4s'");
    one(&sink, &queue, "a").await.unwrap();
    proxy.swallow_answers();
    let mut second = to(&queue, "b");
    let error = sink.deliver(std::slice::from_ref(&second)).await.remove(0).unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unknown, "{}", error.detail);
    proxy.pass_answers();
    second.attempt = 2;
    sink.deliver(&[second]).await.remove(0).unwrap();
    assert_eq!(reader.ids(&queue).await, ["a", "b", "b"], "consumers tell copies by the id");
}

#[tokio::test]
async fn a_connection_that_is_cut_is_noticed_at_once() {
    if !installed() {
        return;
    }
    let queue = Reader::shared().await.queue().await;
    let proxy = Proxy::to(shared().port());
    let sink =
        sink_with(&format!("amqp://guest:guest@127.0.0.1:{}", proxy.port()), "request_timeout = '10m'");
    one(&sink, &queue, "a").await.unwrap();
    proxy.cut_on(b"the-needle", 1);
    let mut delivery = to(&queue, "b");
    delivery.message.body = Body::text("the-needle");
    let error = sink.deliver(std::slice::from_ref(&delivery)).await.remove(0).unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unknown, "{}", error.detail);
    sink.deliver(&[delivery]).await.remove(0).unwrap();
}
