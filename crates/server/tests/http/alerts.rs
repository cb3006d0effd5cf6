//! What a token for some topics learns of alerts: those of its topics, and no word of any other.

use duly_server::config::{Config, StoreSetup, Thresholds};
use serde_json::{Value, json};

use crate::{
    access::{Tenants, tenants},
    bed::{Bed, SOON},
    events::{follow_with, until},
    target::Target,
};

/// Any message is an alert: of its own topic, of the topic of the other tenant, and of all others together.
fn alarming(config: &mut Config) {
    let any = Thresholds { queue_length: Some(0), ..Thresholds::default() };
    config.alerts.topics = ["own", "theirs"].map(|topic| (topic.to_owned(), any.clone())).into();
    config.alerts.all = any;
}

impl Tenants {
    /// The names and scopes of the alerts in `/v1/stats`.
    async fn alerts(&self, token: &str) -> Vec<(String, Option<String>)> {
        let stats = self.call(token, "GET", "/v1/stats", "").await.json();
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let alerts = stats["alerts"].as_array().unwrap().iter();
        alerts.map(|alert| (text(&alert["name"]).unwrap(), text(&alert["scope"]))).collect()
    }

    /// Waits until whoever sees everything sees an alert of this name and scope.
    async fn until_raised(&self, name: &str, scope: Option<&str>) {
        let wanted = (name.to_owned(), scope.map(ToOwned::to_owned));
        let raised = async { while !self.alerts("all-read").await.contains(&wanted) {} };
        tokio::time::timeout(SOON, raised).await.unwrap_or_else(|_| panic!("{wanted:?} is not raised"));
    }
}

/// The sink has a name that the topics of the token would match.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_sees_the_alerts_of_its_topics_and_no_others() {
    let (target, folder) = (Target::new().await, tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let mut bed = Bed::with(|config| {
        config.store = StoreSetup::in_folder(&data);
        target.configure(config, "own-hook");
    })
    .await;
    bed.send(json!({"sink": "own-hook", "topic": "theirs", "delay": "1h"})).await;
    bed.stop().await;
    let without_the_sink = |config: &mut Config| {
        config.store = StoreSetup::in_folder(&data);
        tenants(config);
        alarming(config);
    };
    let tenants = Tenants(Bed::with(without_the_sink).await);

    for topic in ["theirs", "neither"] {
        assert_eq!(tenants.sends("all-admin", topic).await, "");
    }
    for (name, scope) in
        [("queue_length", Some("theirs")), ("queue_length", None), ("orphan", Some("own-hook"))]
    {
        tenants.until_raised(name, scope).await;
    }
    assert_eq!(tenants.alerts("own-read").await, [], "alerts of others");
    assert_eq!(tenants.alerts("all-read").await.len(), 3);

    assert_eq!(tenants.sends("all-admin", "own").await, "");
    tenants.until_raised("queue_length", Some("own")).await;
    assert_eq!(tenants.alerts("own-read").await, [("queue_length".into(), Some("own".into()))]);
    assert_eq!(tenants.alerts("all-read").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_hears_of_the_alerts_of_its_topics_and_of_no_others() {
    let tenants = Tenants(
        Bed::with(|config| {
            tenants(config);
            alarming(config);
        })
        .await,
    );
    let mut own = follow_with(&tenants.0, "?types=alert", "authorization: Bearer own-read\r\n").await;
    let mut all = follow_with(&tenants.0, "?types=alert", "authorization: Bearer all-read\r\n").await;
    for topic in ["theirs", "neither"] {
        assert_eq!(tenants.sends("all-admin", topic).await, "");
    }
    // Those of others are raised before its own, so that they would be heard before it.
    for scope in [Some("theirs"), None] {
        tenants.until_raised("queue_length", scope).await;
    }
    assert_eq!(tenants.sends("all-admin", "own").await, "");
    let raised = |scope: &str| format!("\"scope\":\"{scope}\"");
    let received = until(&mut own, &raised("own")).await;
    assert_eq!(received.matches("event: alert").count(), 1, "{received}");
    assert!(!received.contains("theirs"), "{received}");
    let received = until(&mut all, &raised("own")).await;
    assert_eq!(received.matches("event: alert").count(), 3, "{received}");
    assert!(received.contains(&raised("theirs")), "{received}");
}
