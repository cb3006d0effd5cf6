//! A broker that asks who sends and who may, and by TLS if one likes; it makes no topics.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use duly::SystemClock;
use duly_core::SinkErrorKind;
use duly_sinks::SinkConfig;
use testkit::{
    servers::rocketmq::{Options, Rocketmq, installed},
    tls::ClientCertificate,
};

use crate::{one, sink_with};

/// Every cluster and every broker has a topic of its own name.
pub(crate) const THERE: &str = "duly";
/// The user who may do everything, and his secret.
pub(crate) const USER: (&str, &str) = ("duly", "right-one");

/// Shared by the tests that need it; nobody stops it.
pub(crate) fn servers() -> &'static Rocketmq {
    static SHARED: OnceLock<Rocketmq> = OnceLock::new();
    SHARED.get_or_init(|| {
        let provider = "org.apache.rocketmq.auth.authorization.provider";
        let more = vec![
            "authorizationEnabled=true".to_owned(),
            format!("authorizationProvider={provider}.DefaultAuthorizationProvider"),
            format!("authorizationMetadataProvider={provider}.LocalAuthorizationMetadataProvider"),
        ];
        let user = Some((USER.0.to_owned(), USER.1.to_owned()));
        Rocketmq::with(Options { user, more, ..Options::default() })
    })
}

#[tokio::test]
async fn a_wrong_secret_pauses_the_lane_and_a_topic_that_is_not_there_is_denied() {
    if !installed() {
        return;
    }
    let servers = servers();
    let sink = |keys: &str| sink_with(&servers.namesrv(), keys);
    let there = THERE;

    let right = sink("access_key = 'duly'\nsecret_key = 'right-one'");
    right.probe().await.unwrap();
    one(&right, there, "a").await.unwrap();
    let error = one(&right, "nowhere", "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Denied, "{}", error.detail);
    assert!(error.detail.contains("nowhere"), "{}", error.detail);

    for wrong in
        ["access_key = 'duly'\nsecret_key = 'wrong-one'", "access_key = 'nobody'\nsecret_key = 'x'", ""]
    {
        let sink = sink(wrong);
        let error = sink.probe().await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{wrong}: {}", error.detail);
        let error = one(&sink, there, "c").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{wrong}: {}", error.detail);
        assert!(
            !error.detail.contains("wrong-one") && !error.detail.contains("right-one"),
            "{}",
            error.detail
        );
    }
}

#[tokio::test]
async fn the_doctor_names_a_broker_that_may_lose_messages_and_a_topic_that_is_not_there() {
    if !installed() {
        return;
    }
    let keys = "access_key = 'duly'\nsecret_key = 'right-one'";
    let text = format!("kind = 'rocketmq'\nnamesrv = '{}'\n{keys}", servers().namesrv());
    let config: SinkConfig = toml::from_str(&text).unwrap();
    let clock = Arc::new(SystemClock::new().unwrap());
    let findings = config.inspect(clock, Duration::from_secs(60), &[THERE, "nowhere"]).await;
    let says = |word: &str| findings.iter().any(|finding| finding.detail.contains(word));
    assert!(says("flushDiskType = ASYNC_FLUSH"), "{findings:?}");
    assert!(says("no broker has the topic \"nowhere\""), "{findings:?}");
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[tokio::test]
async fn by_tls_both_ends_prove_who_they_are() {
    if !installed() {
        return;
    }
    let servers = servers();
    let sink = |settings: &str| {
        let keys = "access_key = 'duly'\nsecret_key = 'right-one'\ntls = true";
        sink_with(&servers.namesrv(), &format!("{keys}\n{settings}"))
    };
    let (ca, own) = (format!("ca = '{}'", servers.certificate().display()), servers.clients().settings());
    let trusting = sink(&format!("{ca}\n{own}"));
    trusting.probe().await.unwrap();
    one(&trusting, THERE, "a").await.unwrap();

    let unknown = ClientCertificate::new();
    let stranger = format!("{ca}\n{}", unknown.settings());
    for (settings, what) in
        [(&own, "theirs is not trusted"), (&ca, "ours is missing"), (&stranger, "ours is not known")]
    {
        let sink = sink(settings);
        let error = sink.probe().await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{what}: {}", error.detail);
        let error = one(&sink, THERE, "b").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{what}: {}", error.detail);
    }
}
