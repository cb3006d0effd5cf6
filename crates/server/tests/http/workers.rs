//! What a worker needs: reasons, giving up, bodies as they were sent, several queues.

use duly::{Body, ContentKind, Message};
use duly_server::auth::{Role, Token, Tokens};
use http::Method;
use serde_json::{Value, json};

use crate::bed::Bed;

async fn post(bed: &Bed, path: &str, body: Value) -> Value {
    let answer = bed.post(path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_says_why_and_waits_as_the_message_says() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "slow", "retry": {"backoff": "fixed", "min": "1h", "max": "1h"}}))
        .await;
    bed.send(json!({"topic": "q", "id": "usual"})).await;
    for message in bed.receive("q", 10).await {
        let words = "x".repeat(2_000);
        let nack = json!({"receipts": [message["receipt"]], "error": format!("no connection {words}")});
        assert_eq!(post(&bed, "/v1/queues/q/nack", nack).await["results"][0]["outcome"], "done");
    }
    for (id, least, most) in [("slow", 3_600_000, 3_600_000), ("usual", 5_000, 6_250)] {
        let known = bed.get(&format!("/v1/messages/{id}")).await.json();
        let last = &known["attempts"][0];
        assert_eq!((&known["state"], &last["outcome"]), (&json!("pending"), &json!("failed")));
        let detail = last["detail"].as_str().unwrap();
        assert!(detail.starts_with("no connection x") && detail.len() <= 512, "{detail}");
        let wait = known["retry_at_ms"].as_u64().unwrap() - last["at_ms"].as_u64().unwrap();
        assert!((least..=most).contains(&wait), "{id} waits {wait} ms");
    }
}

/// As a program does that cuts its error text in the middle of an emoji.
#[tokio::test(flavor = "multi_thread")]
async fn a_nack_whose_error_ends_in_half_a_character_is_taken() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "a"})).await;
    let receipt = bed.receive("q", 1).await[0]["receipt"].clone();
    let nack = format!(r#"{{"receipts":[{receipt}],"error":"no order \ud83d"}}"#);
    let answer = bed.post("/v1/queues/q/nack", nack).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["results"][0]["outcome"], "done");
    let known = bed.get("/v1/messages/a").await.json();
    assert_eq!(known["attempts"][0]["detail"], "no order \u{fffd}");
    // Elsewhere the text is the message: it is refused, and the field is named.
    let refused = bed.post("/v1/messages", r#"{"topic":"q","properties":{"name":"\ud83d"}}"#).await;
    assert_eq!(
        (refused.code(), refused.json()["path"].clone()),
        ("bad_json".into(), json!("properties.name"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_whose_error_has_a_raw_control_character_is_refused_by_its_field() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "a"})).await;
    let receipt = bed.receive("q", 1).await[0]["receipt"].clone();
    for path in ["/v1/queues/q/nack", "/v1/nack"] {
        let refused = bed.post(path, format!("{{\"receipts\":[{receipt}],\"error\":\"two\nlines\"}}")).await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (400, "bad_json"), "{refused:?}");
        assert_eq!(refused.json()["path"], "error", "{refused:?}");
    }
    let escaped = format!(r#"{{"receipts":[{receipt}],"error":"two\nlines"}}"#);
    let answer = bed.post("/v1/queues/q/nack", escaped).await;
    assert_eq!(answer.json()["results"][0]["outcome"], "done", "{answer:?}");
    assert_eq!(bed.get("/v1/messages/a").await.json()["attempts"][0]["detail"], "two\nlines");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_may_make_a_dead_letter_that_keeps_the_reason() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "bad"})).await;
    let receipt = bed.receive("q", 1).await[0]["receipt"].clone();
    let both = json!({"receipts": [receipt], "dead": true, "delay": "1s"}).to_string();
    assert_eq!(bed.post("/v1/queues/q/nack", both).await.code(), "bad_field");
    post(&bed, "/v1/queues/q/nack", json!({"receipts": [receipt], "dead": true, "error": "no such order"}))
        .await;
    let dead = bed.get("/v1/dead").await.json()["messages"][0].clone();
    assert_eq!((&dead["id"], &dead["reason"]), (&json!("bad"), &json!("refused")));
    assert_eq!(dead["attempts"][0]["detail"], "no such order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_received_as_it_was_sent() {
    let bed = Bed::new().await;
    let sent = [
        json!({"json": {"order": 42, "big": 12345678901234567890u64}}),
        json!({"json": "text"}),
        json!({"body": "{\"order\":42}"}),
        json!({"body_base64": "aGk="}),
        json!({}),
    ];
    for (number, body) in sent.iter().enumerate() {
        let mut message = body.clone();
        message["topic"] = json!("q");
        message["id"] = json!(number.to_string());
        bed.send(message).await;
    }
    let received = bed.receive("q", 10).await;
    for (number, body) in sent.iter().enumerate() {
        let message = received.iter().find(|message| message["id"] == json!(number.to_string())).unwrap();
        let want = if number == 4 { json!({"body": ""}) } else { body.clone() };
        for field in ["json", "body", "body_base64"] {
            assert_eq!(message.get(field), want.get(field), "{number} {field}");
        }
    }
}

/// Sources, outboxes and the library accept what HTTP refuses. In one answer with others it would break the worker's parser.
#[tokio::test(flavor = "multi_thread")]
async fn json_nested_deeper_than_readers_take_is_received_as_text() {
    let bed = Bed::new().await;
    let nested = |depth: usize| format!("{}\"[[\"{}", "[".repeat(depth), "]".repeat(depth));
    for (id, depth) in [("deep", 501), ("deeper", 100_000), ("fits", 100)] {
        let body = Body::from_parts(ContentKind::Json, nested(depth).into_bytes());
        bed.duly().send(Message::to("q").id(id).body(body)).await.unwrap();
    }
    let received = bed.receive("q", 10).await;
    for message in &received {
        assert_eq!(message["content_type"], "application/json");
        match message["id"].as_str().unwrap() {
            "fits" => assert_eq!((message["json"].to_string(), message.get("body")), (nested(100), None)),
            id => {
                let depth = if id == "deep" { 501 } else { 100_000 };
                assert_eq!((message.get("json"), &message["body"]), (None, &json!(nested(depth))), "{id}");
            }
        }
    }
    assert_eq!(received.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_at_the_address_of_another_queue_is_refused_and_changes_nothing() {
    let mut bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "one"})).await;
    let receipt = bed.receive("a", 1).await[0]["receipt"].clone();
    for restarted in [false, true] {
        if restarted {
            bed.restart().await;
        }
        for verb in ["ack", "nack", "extend"] {
            let body = json!({"receipts": [receipt]}).to_string();
            let answer = bed.post(&format!("/v1/queues/b/{verb}"), body).await;
            let problem = answer.json();
            assert_eq!((answer.code().as_str(), &problem["path"]), ("wrong_queue", &json!("receipts[0]")));
            assert!(problem["detail"].as_str().unwrap().contains("queue \"a\""), "{problem}");
        }
        assert_eq!(bed.get("/v1/messages/one").await.json()["state"], "in_flight");
    }
    let acked = post(&bed, "/v1/queues/a/ack", json!({"receipts": [receipt]})).await;
    assert_eq!(acked["results"][0]["outcome"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_receipt_whose_id_is_in_another_queue_is_lost_and_stops_no_other() {
    let mut bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "one"})).await;
    let stale = bed.receive("a", 1).await[0]["receipt"].clone();
    post(&bed, "/v1/queues/a/nack", json!({"receipts": [stale], "delay": "1h"})).await;
    bed.call(Method::DELETE, "/v1/messages/one", "").await;
    bed.send(json!({"topic": "b", "id": "one"})).await;
    bed.send(json!({"topic": "a", "id": "two"})).await;
    let own = bed.receive("a", 1).await[0]["receipt"].clone();
    // After this nothing but the store knows which queue a receipt is of.
    bed.restart().await;
    let acked = post(&bed, "/v1/queues/a/ack", json!({"receipts": [stale, own]})).await;
    let outcomes = [&acked["results"][0]["outcome"], &acked["results"][1]["outcome"]];
    assert_eq!(outcomes, ["lost", "done"], "{acked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_receives_from_several_queues_and_only_from_those_allowed() {
    let bed = Bed::with(|config| {
        config.tokens = Tokens::new(vec![
            Token::new("shop", "sell-me", &[Role::Consume], &["order*"]),
            Token::new("root", "rule-me", &[Role::Admin], &[]),
        ]);
    })
    .await;
    let call = async |token: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        bed.call_with(Method::POST, path, body.to_string(), &[("authorization", &bearer)]).await
    };
    for topic in ["order.eu", "order.us", "mail"] {
        assert_eq!(call("rule-me", "/v1/messages", json!({"topic": topic, "id": topic})).await.status, 201);
    }
    let wish = json!({"topics": ["order.eu", "mail"]});
    assert_eq!(call("sell-me", "/v1/receive", wish).await.code(), "forbidden");
    for topics in [json!([]), json!(vec!["order"; 33])] {
        assert_eq!(call("sell-me", "/v1/receive", json!({"topics": topics})).await.code(), "too_many");
    }
    let wish = json!({"topics": ["order.us", "order.eu", "order.eu"], "wait": "10s"});
    let received = call("sell-me", "/v1/receive", wish).await.json()["messages"].clone();
    let mut receipts: Vec<_> =
        received.as_array().unwrap().iter().map(|message| message["receipt"].clone()).collect();
    assert_eq!(receipts.len(), 2, "{received}");
    let mail = call("rule-me", "/v1/receive", json!({"topics": ["mail"], "wait": "10s"})).await.json();
    receipts.push(mail["messages"][0]["receipt"].clone());
    for verb in ["extend", "nack"] {
        let settled =
            call("sell-me", &format!("/v1/{verb}"), json!({"receipts": receipts[2..]})).await.json();
        assert_eq!(settled["results"][0]["outcome"], "lost", "{verb}");
    }
    let settled = call("sell-me", "/v1/ack", json!({"receipts": receipts})).await.json();
    let outcomes: Vec<_> = settled["results"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, ["done", "done", "lost"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_only_accepts_hands_out_nothing() {
    let bed = Bed::with(|config| config.deliver = false).await;
    bed.send(json!({"topic": "a", "id": "one"})).await;
    for (path, body) in [("/v1/queues/a/receive", "{}"), ("/v1/receive", r#"{"topics":["a"]}"#)] {
        assert_eq!(bed.post(path, body).await.code(), "delivery_disabled", "{path}");
    }
    let message = bed.get("/v1/messages/one").await.json();
    assert_eq!((&message["state"], &message["attempts_counted"]), (&json!("pending"), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_null_is_received_as_null() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "a", "json": null})).await;
    let received = bed.receive("a", 1).await;
    assert_eq!(received[0].get("json"), Some(&json!(null)), "{received:?}");
    assert_eq!(received[0].get("body"), None);
}
