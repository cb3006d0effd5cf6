//! Rights that are missing for one topic.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use duly_core::{ErrorScope, SinkErrorKind};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha1::Sha1;
use testkit::servers::rocketmq::installed;

use crate::{
    guarded::{self, THERE, USER},
    one, sink_with, to,
};

const AUTH_CREATE_USER: i32 = 3001;
const AUTH_CREATE_ACL: i32 = 3006;

#[tokio::test]
async fn a_topic_that_is_not_ours_is_denied_and_another_goes_on() {
    if !installed() {
        return;
    }
    let servers = guarded::servers();
    let broker = servers.broker();
    let clerk = json!({ "username": "clerk", "password": "clerks-own", "userType": "Normal" });
    ask(&broker, AUTH_CREATE_USER, &[("username", "clerk")], &clerk);
    let policy = json!({ "resource": format!("Topic:{THERE}"), "actions": ["Pub"], "decision": "Allow" });
    let acl =
        json!({ "subject": "User:clerk", "policies": [{ "policyType": "Custom", "entries": [policy] }] });
    ask(&broker, AUTH_CREATE_ACL, &[("subject", "User:clerk")], &acl);

    let sink = sink_with(&servers.namesrv(), "access_key = 'clerk'\nsecret_key = 'clerks-own'");
    sink.probe().await.unwrap();
    // A topic that every broker has.
    let error = one(&sink, "BenchmarkTest", "a").await.unwrap_err();
    assert_eq!(
        (error.kind, error.scope),
        (SinkErrorKind::Denied, ErrorScope::Destination),
        "{}",
        error.detail
    );
    one(&sink, THERE, "b").await.unwrap();
    // The same in one call, before and behind others, and beside a topic that no broker has.
    let topics = ["BenchmarkTest", THERE, "nowhere", THERE, "BenchmarkTest"];
    let topics = topics.iter().cycle().take(60);
    let batch: Vec<_> = topics.clone().enumerate().map(|(n, topic)| to(topic, &format!("c{n}"))).collect();
    for (topic, outcome) in topics.zip(sink.deliver(&batch).await) {
        match outcome {
            Ok(_) => assert_eq!(*topic, THERE),
            Err(error) => {
                let is_so = (error.kind, error.scope) == (SinkErrorKind::Denied, ErrorScope::Destination);
                assert!(is_so && *topic != THERE, "{topic}: {error}");
            }
        }
    }
}

/// As the user who may do everything.
fn ask(broker: &str, code: i32, fields: &[(&str, &str)], body: &Value) {
    let body = body.to_string();
    let mut mac = Hmac::<Sha1>::new_from_slice(USER.1.as_bytes()).unwrap();
    // In order of their names: the key comes first.
    mac.update(USER.0.as_bytes());
    fields.iter().for_each(|(_, value)| mac.update(value.as_bytes()));
    mac.update(body.as_bytes());
    let mut header = json!({ "code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 400,
        "extFields": { "AccessKey": USER.0, "Signature": STANDARD.encode(mac.finalize().into_bytes()) } });
    for (name, value) in fields {
        header["extFields"][name] = Value::from(*value);
    }
    let header = header.to_string();
    let mut stream = TcpStream::connect(broker).unwrap();
    stream.write_all(&((4 + header.len() + body.len()) as u32).to_be_bytes()).unwrap();
    stream.write_all(&(header.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(format!("{header}{body}").as_bytes()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("\"code\":0"), "{answer}");
}
