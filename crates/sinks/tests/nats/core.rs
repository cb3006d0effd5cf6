//! Core NATS, which is asked for and at most once.

use std::time::Duration;

use duly_core::{Body, ErrorScope, SinkErrorKind};
use futures_util::StreamExt;
use testkit::servers::{
    nats::{Nats, installed},
    proxy::Proxy,
};

use crate::{configured, one, sink_with, to};

/// A user who may publish orders, and one who may listen besides. Another hears everything.
const USERS: &str = "authorization { users: [\n\
     { user: all, password: x }\n\
     { user: mute, password: x, permissions { publish: [\"orders.>\", 'a\"b'], subscribe: { deny: \">\" } } }\n\
     { user: few, password: x, permissions { publish: [\"orders.>\"], subscribe: [\"_INBOX.>\"] } }\n\
     ] }";

fn url(nats: &Nats, user: &str) -> String {
    format!("nats://{user}:x@127.0.0.1:{}", nats.port())
}

/// Hears all that is published from now on.
async fn listener(nats: &Nats) -> async_nats::Subscriber {
    let options = async_nats::ConnectOptions::with_user_and_password("all".into(), "x".into());
    let client = options.connect(nats.url()).await.unwrap();
    let mut subscriber = client.subscribe(">").await.unwrap();
    // Until the server has this one back to us, it may not know that we listen.
    client.publish("ready", "listening".into()).await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().payload, "listening");
    subscriber
}

async fn next_id(subscriber: &mut async_nats::Subscriber) -> String {
    subscriber.next().await.unwrap().headers.unwrap().get("duly-id").unwrap().to_string()
}

#[tokio::test]
async fn whoever_listens_gets_it_and_nobody_has_to() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let sink = sink_with(&nats.url(), "mode = 'core'");
    sink.probe().await.unwrap();
    let receipt = one(&sink, "orders", "unheard").await.unwrap();
    assert!(receipt.contains("at most once"), "{receipt}");

    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut subscriber = client.subscribe("orders").await.unwrap();
    // Until the server has this one back to us, it may not know that we listen.
    client.publish("orders", "listening".into()).await.unwrap();
    assert_eq!(subscriber.next().await.unwrap().payload, "listening");
    let batch: Vec<_> = (0..500).map(|n| to("orders", &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok));
    for delivery in &batch {
        let message = subscriber.next().await.unwrap();
        assert_eq!(message.headers.unwrap().get("duly-id").unwrap().as_str(), delivery.message.id.as_str());
    }
    nats.kill();
    assert!(one(&sink, "orders", "a").await.is_err());
}

#[tokio::test]
async fn a_user_who_may_not_listen_delivers_once_and_is_denied_by_subject() {
    if !installed() {
        return;
    }
    let nats = Nats::with(USERS);
    let mut subscriber = listener(&nats).await;
    for user in ["mute", "few"] {
        let sink = sink_with(&url(&nats, user), "mode = 'core'\nrequest_timeout = '10m'");
        sink.probe().await.unwrap();
        // More denials than a client could keep in line, among messages that go through.
        let batch: Vec<_> =
            (0..600).map(|n| to(["orders.new", "bills", "a\"c"][n % 3], &format!("{user}{n}"))).collect();
        let outcomes = sink.deliver(&batch).await;
        for (delivery, outcome) in batch.iter().zip(&outcomes) {
            let id = delivery.message.id.as_str();
            if delivery.message.topic.as_str() == "orders.new" {
                assert!(outcome.is_ok(), "{outcome:?}");
                assert_eq!(next_id(&mut subscriber).await, id, "once, and nothing else");
                continue;
            }
            let error = outcome.as_ref().unwrap_err();
            assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{id}");
            assert!(error.detail.contains("Permissions Violation for Publish"), "{}", error.detail);
        }
    }
    let sink = sink_with(&url(&nats, "mute"), "mode = 'core'");
    one(&sink, "a\"b", "quoted").await.unwrap();
    assert_eq!(next_id(&mut subscriber).await, "quoted");
}

#[tokio::test]
async fn what_is_too_large_with_its_headers_is_refused_and_its_neighbours_go() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let sink = sink_with(&nats.url(), "mode = 'core'");
    let mut large = to("orders", "large");
    // The body alone would fit.
    large.message.body = Body::bytes(vec![0; 2 * 1024 * 1024 - 10]);
    let outcomes = sink.deliver(&[to("orders", "a"), large, to("orders", "b")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
}

#[tokio::test]
async fn a_wrong_password_pauses_the_lane() {
    if !installed() {
        return;
    }
    let nats = Nats::with(USERS);
    for who in ["mute:wrong@", "token@", ""] {
        let sink = sink_with(&format!("nats://{who}127.0.0.1:{}", nats.port()), "mode = 'core'");
        let error = one(&sink, "orders.new", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
}

#[tokio::test]
async fn a_connection_cut_before_the_pong_leaves_it_unknown_and_a_dead_server_is_passed_over() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let proxy = Proxy::to(nats.port());
    // Nothing listens on the first port.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("nats://127.0.0.1:{dead},127.0.0.1:{}", proxy.port());
    let sink = sink_with(&url, "mode = 'core'\nrequest_timeout = '10m'");
    one(&sink, "orders", "a").await.unwrap();
    proxy.cut_on(b"duly-id: b", 1);
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unknown, ErrorScope::Target));
    one(&sink, "orders", "b").await.unwrap();
    nats.kill();
    let _ = one(&sink, "orders", "c").await;
    assert_eq!(one(&sink, "orders", "c").await.unwrap_err().kind, SinkErrorKind::Unreachable);
}

#[tokio::test]
async fn doctor_is_told_that_it_is_at_most_once() {
    let clock = std::sync::Arc::new(duly::SystemClock::new().unwrap());
    let config = configured("nats://127.0.0.1", "mode = 'core'");
    let remarks = config.inspect(clock, Duration::from_secs(1), &[]).await;
    assert!(remarks.len() == 1 && remarks[0].detail.contains("at-most-once"), "{remarks:?}");
}
