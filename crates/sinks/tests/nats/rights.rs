//! Users with few rights.

use async_nats::jetstream::stream::Config;
use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::nats::{Nats, installed};

use crate::{ids, one, sink_with, to};

#[tokio::test]
async fn a_user_who_may_publish_to_one_subject_is_denied_on_others_at_once() {
    if !installed() {
        return;
    }
    let nats = Nats::with(
        "authorization { users: [\n\
         { user: all, password: x }\n\
         { user: few, password: x, permissions { publish: [\"orders.new\"], subscribe: [\"_INBOX.>\"] } }\n\
         ] }",
    );
    let url = |user: &str| format!("nats://{user}:x@127.0.0.1:{}", nats.port());
    let options = async_nats::ConnectOptions::with_user_and_password("all".into(), "x".into());
    let context = async_nats::jetstream::new(options.connect(nats.url()).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..Config::default() };
    let mut all = context.create_stream(config).await.unwrap();

    let sink = sink_with(&url("few"), "request_timeout = '10m'");
    let outcomes = sink.deliver(&[to("orders.new", "a"), to("orders.old", "b"), to("orders.new", "c")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination));
    assert!(error.detail.contains("Permissions Violation"), "{}", error.detail);
    sink.probe().await.unwrap();
    one(&sink, "orders.new", "d").await.unwrap();
    assert_eq!(ids(&mut all).await, ["a", "c", "d"]);
    // Nobody has this subject, and this user may not ask whether anybody should.
    context.delete_stream("ORDERS").await.unwrap();
    let error = one(&sink, "orders.new", "e").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Destination));
    assert!(error.detail.contains("$JS.API.STREAM.NAMES"), "{}", error.detail);
}

#[tokio::test]
async fn a_user_who_may_not_hear_acknowledgements_pauses_the_lane_and_nothing_is_sent() {
    if !installed() {
        return;
    }
    let nats = Nats::with(
        "authorization { users: [\n\
         { user: all, password: x }\n\
         { user: deaf, password: x, permissions { publish: \">\", subscribe: { deny: \">\" } } }\n\
         { user: own, password: x, permissions { publish: \">\", subscribe: [\"_INBOX_own.>\"] } }\n\
         ] }",
    );
    let url = |user: &str| format!("nats://{user}:x@127.0.0.1:{}", nats.port());
    let options = async_nats::ConnectOptions::with_user_and_password("all".into(), "x".into());
    let context = async_nats::jetstream::new(options.connect(nats.url()).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders.>".into()], ..Config::default() };
    let mut all = context.create_stream(config).await.unwrap();
    for user in ["deaf", "own"] {
        let sink = sink_with(&url(user), "request_timeout = '10m'");
        for _ in 0..2 {
            let error = one(&sink, "orders.new", "a").await.unwrap_err();
            assert_eq!((error.kind, error.scope), (SinkErrorKind::Misconfigured, ErrorScope::Target));
            assert!(error.detail.contains("_INBOX.>"), "{}", error.detail);
        }
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
    assert_eq!(ids(&mut all).await, [""; 0]);
}

#[tokio::test]
async fn a_token_logs_in_from_the_url_and_from_its_setting() {
    if !installed() {
        return;
    }
    let nats = Nats::with("authorization { token: \"t0ken\" }");
    sink_with(&format!("nats://t0ken@127.0.0.1:{}", nats.port()), "").probe().await.unwrap();
    sink_with(&nats.url(), "token = 't0ken'").probe().await.unwrap();
    let error = sink_with(&nats.url(), "token = 'other'").probe().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured);
}
