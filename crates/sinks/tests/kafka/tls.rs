//! The same by TLS.

use duly_core::SinkErrorKind;
use testkit::{
    servers::kafka::{PASSWORD, USER, installed, shared},
    tls::ClientCertificate,
};

use crate::{ids, one, sink_with, topic_of};

#[tokio::test]
async fn a_certificate_that_checks_out_is_trusted_and_no_other() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 1).await;
    let ca = format!("tls = true\nca = '{}'", kafka.certificate().display());
    let trusting = sink_with(&kafka.by_tls(), &ca);
    trusting.probe().await.unwrap();
    one(&trusting, &topic, "a").await.unwrap();
    let error = one(&sink_with(&kafka.by_tls(), "tls = true"), &topic, "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);

    let user =
        |password| format!("{ca}\nuser = '{USER}'\npassword = '{password}'\nmechanism = 'scram-sha-256'");
    one(&sink_with(&kafka.guarded_by_tls(), &user(PASSWORD)), &topic, "c").await.unwrap();
    let error = one(&sink_with(&kafka.guarded_by_tls(), &user("wrong")), &topic, "d").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
    assert_eq!(ids(kafka, &topic).await, ["a", "c"]);
}

#[tokio::test]
async fn a_broker_that_wants_a_certificate_of_ours_gets_it() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let topic = topic_of(kafka, 1).await;
    let with = |own: &str| {
        let ca = format!("tls = true\nca = '{}'\n{own}", kafka.certificate().display());
        sink_with(&kafka.by_mutual_tls(), &ca)
    };
    one(&with(&kafka.clients().settings()), &topic, "a").await.unwrap();
    for own in [String::new(), ClientCertificate::new().settings()] {
        // librdkafka may see nothing but a connection that is closed.
        let error = one(&with(&own), &topic, "b").await.unwrap_err();
        let costs_nothing = matches!(error.kind, SinkErrorKind::Misconfigured | SinkErrorKind::Unreachable);
        assert!(costs_nothing, "{own}: {:?} {}", error.kind, error.detail);
    }
    assert_eq!(ids(kafka, &topic).await, ["a"]);
}
