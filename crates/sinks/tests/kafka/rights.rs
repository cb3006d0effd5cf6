//! What users may do, and what it means that they may not.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::kafka::{LIMITED, PASSWORD, WEAK, installed, shared};

use crate::{ids, one, sink_with, to, topic_of, until_taken};

fn user(name: &str) -> String {
    format!("user = '{name}'\npassword = '{PASSWORD}'")
}

#[tokio::test]
async fn a_user_without_any_rights_delivers_nothing_and_loses_nothing() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 1).await;
    let weak = sink_with(&kafka.guarded(), &user(WEAK));
    let error = one(&weak, &topic, "a").await.unwrap_err();
    // Two refusals race: that of the topic, and that of an idempotent producer's id, which a broker gives to whoever may write to
    // any topic. Both are true of a user who may write to none.
    let either = [
        (SinkErrorKind::Denied, ErrorScope::Destination),
        (SinkErrorKind::Misconfigured, ErrorScope::Target),
    ];
    assert!(either.contains(&(error.kind, error.scope)), "{error:?}");
    assert!(error.detail.contains("authorization failed"), "{}", error.detail);
    assert!(ids(kafka, &topic).await.is_empty());
}

#[tokio::test]
async fn a_forbidden_topic_denies_its_messages_alone_until_the_right_is_given() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (open, closed) = (topic_of(kafka, 1).await, topic_of(kafka, 1).await);
    allow_write(&kafka.address(), LIMITED, &open);
    let sink = sink_with(&kafka.guarded(), &user(LIMITED));
    // News of the right takes time.
    until_taken(&sink, &open, "first").await;
    let outcomes = sink.deliver(&[to(&closed, "a"), to(&open, "b"), to(&closed, "c")]).await;
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    for index in [0, 2] {
        let error = outcomes[index].as_ref().unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
        assert!(error.detail.contains("authorization"), "{}", error.detail);
    }
    allow_write(&kafka.address(), LIMITED, &closed);
    until_taken(&sink, &closed, "late").await;
    assert_eq!(ids(kafka, &closed).await, ["late"]);
    assert_eq!(ids(kafka, &open).await, ["b", "first"]);
}

/// Gives a user the right to write to a topic, by the request CreateAcls: the client library in use has none.
fn allow_write(address: &str, user: &str, topic: &str) {
    const CREATE_ACLS: [u8; 4] = [0, 30, 0, 1];
    const TOPIC: u8 = 2;
    const LITERAL: u8 = 3;
    const WRITE: u8 = 4;
    const ALLOW: u8 = 3;
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let correlation = 7_u32.to_be_bytes();
    let one = 1_u32.to_be_bytes();
    let request = [
        &CREATE_ACLS[..],
        &correlation,
        &text("test"),
        &one,
        &[TOPIC],
        &text(topic),
        &[LITERAL],
        &text(&format!("User:{user}")),
        &text("*"),
        &[WRITE, ALLOW],
    ]
    .concat();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(&(request.len() as u32).to_be_bytes()).unwrap();
    connection.write_all(&request).unwrap();
    // Length, correlation, throttle time, number of results, error code.
    let mut answer = [0; 4 + 4 + 4 + 4 + 2];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(answer[16..], [0, 0], "the right is given");
}
