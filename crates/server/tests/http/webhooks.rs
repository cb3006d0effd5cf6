//! Messages that leave by a webhook, from the call to the target.

use duly_server::config::StoreSetup;
use http::StatusCode;
use serde_json::json;

use crate::{bed::Bed, target::Target};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_its_webhook_with_all_its_fields() {
    let target = Target::new().await;
    let bed = Bed::with(|config| target.configure(config, "hook")).await;
    let sent = json!({"sink": "hook", "topic": "orders/unpaid", "json": {"order": 42}, "id": "order-42", "delay": 20, "properties": {"x-tenant": "a"}});
    bed.send(sent).await;
    let (path, headers, body) = target.next().await;
    assert_eq!((path.as_str(), &body[..]), ("/base/orders/unpaid", &b"{\"order\":42}"[..]));
    for (name, value) in [
        ("duly-id", "order-42"),
        ("duly-attempt", "1"),
        ("x-tenant", "a"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(headers[name], value);
    }
    let record = bed.get("/v1/messages/order-42").await.json();
    assert_eq!(headers["duly-due"].to_str().unwrap(), record["deliver_at_ms"].to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_with_attributes_of_cloudevents_sends_them_with_each_message() {
    let target = Target::new().await;
    let bed = Bed::with(|config| {
        target.configure(config, "hook");
        let attributes = json!({"source": "/shop", "type": "shop.{topic}"});
        let setup = config.sinks.get_mut(&"hook".parse().unwrap()).unwrap();
        setup.cloudevents = Some(serde_json::from_value(attributes).unwrap());
    })
    .await;
    bed.send(json!({"sink": "hook", "topic": "paid", "json": {"order": 42}, "id": "order-42"})).await;
    let (_, headers, _) = target.next().await;
    let record = bed.get("/v1/messages/order-42").await.json();
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "order-42"),
        ("ce-source", "/shop"),
        ("ce-type", "shop.paid"),
        ("ce-time", record["deliver_at"].as_str().unwrap()),
        ("content-type", "application/json"),
    ] {
        assert_eq!(headers[name], value);
    }
    assert_eq!(record["properties"], json!({}), "they are the sink's, not the message's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_a_dead_letter_with_the_targets_words_and_a_pause_holds_messages_back() {
    let target = Target::new().await;
    let bed = Bed::with(|config| target.configure(config, "hook")).await;
    let mut events = bed.duly().events();
    target.answer(StatusCode::UNPROCESSABLE_ENTITY);
    bed.send(json!({"sink": "hook", "topic": "t", "id": "bad"})).await;
    target.next().await;
    while !matches!(events.next().await, Some(duly::Event::Dead { .. })) {}
    let dead = bed.get("/v1/messages/bad").await.json();
    assert_eq!((dead["state"].clone(), dead["reason"].clone()), (json!("dead"), json!("refused")));
    assert!(dead["attempts"][0]["detail"].as_str().unwrap().contains("422"), "{dead}");

    target.answer(StatusCode::NO_CONTENT);
    assert_eq!(bed.post("/v1/sinks/hook/pause", "").await.status, 204);
    bed.send(json!({"sink": "hook", "topic": "t", "id": "held"})).await;
    let sinks = bed.get("/v1/sinks").await.json();
    assert_eq!(
        (sinks["sinks"][0]["state"].clone(), sinks["sinks"][0]["kind"].clone()),
        (json!("paused"), json!("webhook"))
    );
    assert_eq!(bed.get("/v1/messages/held").await.json()["state"], "pending");
    assert_eq!(bed.post("/v1/sinks/hook/resume", "").await.status, 204);
    assert_eq!(target.next().await.1["duly-id"], "held");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_sink_that_left_the_configuration_wait_and_are_shown() {
    let target = Target::new().await;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut bed = Bed::with(|config| {
        config.store = StoreSetup::in_folder(&data);
        target.configure(config, "gone");
    })
    .await;
    bed.send(json!({"sink": "gone", "topic": "t", "id": "waits", "delay": "1h"})).await;
    bed.stop().await;
    let bed = Bed::with(|config| config.store = StoreSetup::in_folder(&data)).await;
    let ready = bed.get("/readyz").await.json();
    assert_eq!((ready["ready"].clone(), ready["orphans"][0]["sink"].clone()), (json!(true), json!("gone")));
    assert_eq!(bed.get("/v1/sinks").await.json()["sinks"][0]["state"], "orphan");
    assert_eq!(bed.post("/v1/messages", r#"{"sink":"gone","topic":"t"}"#).await.code(), "unknown_sink");
    assert_eq!(bed.get("/v1/messages/waits").await.json()["state"], "pending");
}
