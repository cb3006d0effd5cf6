//! What each failure is taken for.

use std::sync::Mutex;

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy, StorageType},
};
use duly_core::{Body, ErrorScope, Outcomes, Properties, SinkErrorKind};
use testkit::servers::nats::{Nats, installed};

use crate::{failure, ids, one, orders, sink_to, sink_with, stream, to};

#[tokio::test]
async fn a_wrong_password_pauses_the_lane_and_so_does_none() {
    if !installed() {
        return;
    }
    let nats = Nats::with("authorization { user: ann, password: right }");
    for who in ["ann:wrong@", "nobody:right@", "token@", ""] {
        let sink = sink_with(&format!("nats://{who}127.0.0.1:{}", nats.port()), "");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
        assert!(!error.detail.contains("wrong") && !error.detail.contains("right"), "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
    let sink = sink_with(&format!("nats://ann:right@127.0.0.1:{}", nats.port()), "");
    sink.probe().await.unwrap();
}

#[tokio::test]
async fn a_subject_without_a_stream_is_denied_alone_until_there_is_one() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let sink = sink_to(&nats);
    let error = one(&sink, "orders.new", "a").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination));
    assert!(error.detail.contains("no stream has the subject \"orders.new\""), "{}", error.detail);
    let mut stream = orders(&nats).await;
    let outcomes = sink.deliver(&[to("orders.new", "a"), to("bills", "b"), to("orders", "c")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Denied);
    assert_eq!(ids(&mut stream).await, ["a", "c"]);
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_the_servers_words() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let config = Config { max_message_size: 1_000, ..Config::default() };
    stream(&nats.url(), config).await;
    let sink = sink_to(&nats);
    let mut large = to("orders", "large");
    large.message.body = Body::bytes(vec![0; 2_000]);
    let mut huge = to("orders", "huge");
    huge.message.body = Body::bytes(vec![0; 3_000_000]);
    let outcomes = sink.deliver(&[large, huge, to("orders", "small")]).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Refused, "larger than the stream takes");
    assert!(error.detail.contains("exceeds maximum"), "{}", error.detail);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused, "larger than max_payload");
    assert!(outcomes[2].is_ok(), "{outcomes:?}");
}

#[tokio::test]
async fn a_full_stream_that_takes_no_more_is_throttled_and_other_streams_go_on() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let of = |name: &str, config: Config| Config {
        name: name.into(),
        subjects: vec![name.to_lowercase()],
        discard: DiscardPolicy::New,
        ..config
    };
    let full = [
        ("COUNT", Config { max_messages: 1, ..Config::default() }),
        ("BYTES", Config { max_bytes: 200, ..Config::default() }),
        ("EACH", Config { max_messages_per_subject: 1, discard_new_per_subject: true, ..Config::default() }),
    ];
    for (name, config) in full.clone() {
        context.create_stream(of(name, config)).await.unwrap();
    }
    context.create_stream(of("OPEN", Config::default())).await.unwrap();
    let sink = sink_to(&nats);
    for (name, _) in full {
        let subject = name.to_lowercase();
        let batch = [to(&subject, "a"), to(&subject, "b"), to("open", &subject)];
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Throttled, ErrorScope::Destination));
        assert!(error.detail.contains("exceeded"), "{}", error.detail);
        context.get_stream(name).await.unwrap().purge().await.unwrap();
        one(&sink, &subject, "b").await.unwrap();
    }
}

#[tokio::test]
async fn an_account_without_room_is_throttled_by_destination() {
    if !installed() {
        return;
    }
    let nats = Nats::with(
        "accounts { A { jetstream { max_mem: 2KB, max_file: 1MB }, users: [{ user: ann, password: x }] } }\n\
         no_auth_user: ann",
    );
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let of = |name: &str, storage| Config {
        name: name.into(),
        subjects: vec![name.to_lowercase()],
        storage,
        ..Config::default()
    };
    context.create_stream(of("MEMORY", StorageType::Memory)).await.unwrap();
    context.create_stream(of("FILE", StorageType::File)).await.unwrap();
    let sink = sink_to(&nats);
    let batch: Vec<_> = (0..40).map(|n| to(["memory", "file"][n % 2], &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().skip(1).step_by(2).all(Result::is_ok), "{outcomes:?}");
    let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).unwrap();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Throttled, ErrorScope::Destination));
    assert!(error.detail.contains("resource"), "{}", error.detail);
}

#[tokio::test]
async fn a_sealed_stream_is_denied() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let stream = orders(&nats).await;
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = stream.cached_info().config.clone();
    context.update_stream(Config { sealed: true, ..config }).await.unwrap();
    let error = one(&sink_to(&nats), "orders", "a").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
}

#[tokio::test]
async fn a_stream_that_never_acknowledges_is_a_silent_destination_and_others_are_reported_before() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    stream(&nats.url(), Config::default()).await;
    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config =
        Config { name: "SILENT".into(), subjects: vec!["silent".into()], no_ack: true, ..Config::default() };
    context.create_stream(config).await.unwrap();
    let sink = sink_with(&nats.url(), "request_timeout = '2s'");
    let batch = [to("silent", "a"), to("orders", "b"), to("nobody", "c"), to("silent", "d")];
    let order = Mutex::new(Vec::new());
    let report = |index: usize, result: duly_core::DeliveryResult| {
        order.lock().unwrap().push((index, result.map_err(|error| (error.kind, error.scope))));
    };
    sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    let order = order.into_inner().unwrap();
    assert!(
        matches!(
            &order[..2],
            [(1, Ok(_)), (2, Err((SinkErrorKind::Denied, _)))]
                | [(2, Err((SinkErrorKind::Denied, _))), (1, Ok(_))]
        ),
        "{order:?}"
    );
    let silent = Err((SinkErrorKind::Unknown, ErrorScope::Destination));
    assert_eq!(order[2..], [(0, silent.clone()), (3, silent)]);
}

#[tokio::test]
async fn properties_and_topics_that_nats_has_no_place_for_are_refused() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    orders(&nats).await;
    let sink = sink_to(&nats);
    for (name, value) in [("Nats-Rollup", "all"), ("Content-Type", "x"), ("a name", "x")] {
        let mut delivery = to("orders", "a");
        let mut properties = Properties::default();
        properties.set(name, value).unwrap();
        delivery.message.properties = properties;
        let outcomes = sink.deliver(&[delivery, to("orders", "b")]).await;
        let error = outcomes[0].as_ref().unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Refused);
        assert!(error.detail.contains(name), "{}", error.detail);
        assert!(outcomes[1].is_ok());
    }
    for topic in ["orders new", "orders..new", "orders.*", "$JS.API.INFO"] {
        assert_eq!(failure(&sink, topic, "a").await, SinkErrorKind::Refused, "{topic}");
    }
}

#[tokio::test]
async fn a_server_without_jetstream_is_waited_for() {
    if !installed() {
        return;
    }
    let nats = Nats::with("accounts { A { users: [{ user: ann, password: x }] } }");
    let sink = sink_with(&format!("nats://ann:x@127.0.0.1:{}", nats.port()), "");
    let error = one(&sink, "orders", "a").await.unwrap_err();
    let of_all = [SinkErrorKind::Misconfigured, SinkErrorKind::Unreachable];
    assert!(
        of_all.contains(&error.kind) && error.scope == ErrorScope::Target,
        "this account has none: {error:?}"
    );
    assert!(sink.probe().await.is_err());
}

#[tokio::test]
async fn a_server_that_hangs_leaves_the_outcome_unknown_and_is_not_waited_for_twice() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let mut stream = orders(&nats).await;
    let sink = sink_with(&nats.url(), "request_timeout = '4s'");
    one(&sink, "orders", "a").await.unwrap();
    nats.pause();
    assert_eq!(failure(&sink, "orders", "b").await, SinkErrorKind::Unknown, "it was sent");
    assert_eq!(failure(&sink, "orders", "c").await, SinkErrorKind::Unreachable, "this one was not");
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    nats.cont();
    let patient = sink_to(&nats);
    for id in ["b", "c"] {
        one(&patient, "orders", id).await.unwrap();
    }
    one(&sink, "orders", "d").await.unwrap();
    let mut there = ids(&mut stream).await;
    there.sort_unstable();
    assert_eq!(there, ["a", "b", "c", "d"], "and b is there once");
}

#[tokio::test]
async fn a_connection_with_too_many_unanswered_messages_is_replaced() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    orders(&nats).await;
    // Somebody listens, and never answers.
    let other = async_nats::connect(nats.url()).await.unwrap();
    let _heard = other.subscribe("silent").await.unwrap();
    other.flush().await.unwrap();
    let sink = sink_with(&nats.url(), "request_timeout = '4s'");
    one(&sink, "orders", "before").await.unwrap();
    // The server numbers its connections.
    let number = async || async_nats::connect(nats.url()).await.unwrap().server_info().client_id;
    let before = number().await;
    let batches: Vec<Vec<_>> =
        (0..11).map(|call| (0..1_000).map(|n| to("silent", &format!("{call}-{n}"))).collect()).collect();
    let calls = batches.iter().map(|batch| sink.deliver(batch));
    let outcomes = futures_util::future::join_all(calls).await;
    assert!(outcomes.iter().flatten().all(Result::is_err));
    assert_eq!(number().await, before + 1, "it is kept until it is used again");
    one(&sink, "orders", "after").await.unwrap();
    assert_eq!(number().await, before + 3, "the sink has connected anew");
    one(&sink, "orders", "later").await.unwrap();
    assert_eq!(number().await, before + 4, "and keeps that one");
}
