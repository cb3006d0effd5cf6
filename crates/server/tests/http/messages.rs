//! One message, from its acceptance to its end.

use http::Method;
use serde_json::json;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_contract_is_answered_as_written() {
    let bed = Bed::new().await;
    let body =
        r#"{"topic":"order","json":{"order": 42},"delay":"15m","id":"order-42","properties":{"tenant":"a"}}"#;
    let answer = bed.post("/v1/messages", body).await;
    assert_eq!(answer.status, 201);
    let reply = answer.json();
    for (field, value) in [("id", "order-42"), ("sink", "queue"), ("topic", "order"), ("state", "pending")] {
        assert_eq!(reply[field], value);
    }
    assert_eq!(reply["duplicate"], false);
    let at = duly::parse_time(reply["deliver_at"].as_str().unwrap()).unwrap();
    assert_eq!(reply["deliver_at_ms"], at.as_millis());

    let again = bed.post("/v1/messages", body).await;
    assert_eq!((again.status.as_u16(), again.json()["duplicate"].clone()), (200, json!(true)));
    assert_eq!(again.json()["deliver_at_ms"], reply["deliver_at_ms"]);
    let other = bed.post("/v1/messages", body.replace("42}", "43}")).await;
    assert_eq!(other.code(), "id_conflict");

    let known = bed.get("/v1/messages/order-42").await.json();
    assert_eq!((known["state"].clone(), known["body"].clone()), (json!("pending"), json!("{\"order\":42}")));
    assert_eq!(known["properties"]["tenant"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_reschedule_and_fire_answer_exactly() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "one", "delay": "1h"})).await;
    let moved = bed.call(Method::PATCH, "/v1/messages/one", r#"{"deliver_at":2000000000000}"#).await;
    assert_eq!(
        (moved.status.as_u16(), moved.json()["deliver_at"].clone()),
        (200, json!("2033-05-18T03:33:20.000Z"))
    );
    let cancelled = bed.call(Method::DELETE, "/v1/messages/one", "").await;
    assert_eq!((cancelled.status.as_u16(), cancelled.json()["state"].clone()), (200, json!("cancelled")));
    assert_eq!(bed.call(Method::DELETE, "/v1/messages/nobody", "").await.code(), "not_found");
    assert_eq!(bed.call(Method::PATCH, "/v1/messages/nobody", r#"{"delay":1}"#).await.code(), "not_found");
    assert_eq!(bed.call(Method::PATCH, "/v1/messages/one", "{}").await.code(), "no_time");

    bed.send(json!({"topic": "a", "id": "two", "delay": "1h", "body": "x"})).await;
    assert_eq!(bed.post("/v1/messages/two/fire", "").await.status, 200);
    let received = bed.receive("a", 1).await;
    assert_eq!(received[0]["id"], "two");
    let late = bed.call(Method::DELETE, "/v1/messages/two", "").await;
    assert_eq!((late.code(), late.json()["state"].clone()), ("too_late".into(), json!("in_flight")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_received_acknowledged_and_remembered() {
    let bed = Bed::new().await;
    let sent = json!({"topic": "mail", "body_base64": "AP8=", "delay": 30, "tag": "t", "key": "k", "properties": {"a": "b"}});
    let before = bed.duly().now().as_millis();
    let id = bed.send(sent).await;
    let due = bed.get(&format!("/v1/messages/{id}")).await.json()["deliver_at_ms"].as_u64().unwrap();
    let received = bed.receive("mail", 10).await;
    assert!(bed.duly().now().as_millis() >= due, "never early");
    assert_eq!(received.len(), 1);
    let message = &received[0];
    assert_eq!((message["body_base64"].clone(), message.get("body")), (json!("AP8="), None));
    assert_eq!(
        (message["attempt"].clone(), message["tag"].clone(), message["key"].clone()),
        (json!(1), json!("t"), json!("k"))
    );
    let receipts = json!({"receipts": [message["receipt"]]}).to_string();
    let extended = bed.post("/v1/queues/mail/extend", receipts.clone()).await.json();
    assert_eq!(extended["results"][0]["outcome"], "done");
    let acked = bed.post("/v1/queues/mail/ack", receipts.clone()).await.json();
    assert_eq!(acked["results"][0]["outcome"], "done");
    assert_eq!(bed.post("/v1/queues/mail/ack", receipts).await.json()["results"][0]["outcome"], "lost");
    let known = bed.get(&format!("/v1/messages/{id}")).await.json();
    assert_eq!((known["state"].clone(), known.get("body_base64")), (json!("delivered"), None));
    assert!(known["delivered_at_ms"].as_u64().unwrap() >= due);
    let accepted = known["accepted_at_ms"].as_u64().unwrap();
    assert!(accepted >= before && accepted <= due, "accepted at {accepted}, sent at {before}, due at {due}");
    let text = known["accepted_at"].as_str().unwrap();
    assert_eq!(duly::parse_time(text).unwrap().as_millis(), accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_one_process_is_one_shard_of_its_own() {
    let target = crate::target::Target::new().await;
    let bed = Bed::with(|config| {
        config.node = "alone".into();
        target.configure(config, "hook");
    })
    .await;
    bed.send(json!({"topic": "waits", "id": "a", "delay": "1h"})).await;
    let only = async || {
        let nodes = bed.get("/v1/nodes").await.json();
        assert_eq!(nodes["shards"].as_array().unwrap().len(), 1, "{nodes}");
        nodes["shards"][0].clone()
    };
    let shard = only().await;
    assert_eq!((&shard["shard"], shard.get("lag_ms")), (&json!(0), None), "nothing is late: {shard}");
    let owners = shard["owners"].as_array().unwrap();
    assert!(owners.contains(&json!({"lane": "hook", "node": "alone"})), "{shard}");
    bed.send(json!({"topic": "late", "id": "b"})).await;
    assert!(only().await["lag_ms"].is_u64(), "nobody receives it");
    assert_eq!(bed.post("/v1/queues/late/pause", "").await.status, 204);
    assert_eq!(only().await.get("lag_ms"), None, "it is not to be received");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_comes_again_and_the_last_one_is_a_dead_letter_that_can_be_replayed() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "bad", "body": "keep me", "retry": {"attempts": 2}})).await;
    for attempt in 1..=2 {
        let received = bed.receive("q", 1).await;
        assert_eq!(received[0]["attempt"], attempt);
        let nack = json!({"receipts": [received[0]["receipt"]], "delay": 0}).to_string();
        assert_eq!(bed.post("/v1/queues/q/nack", nack).await.json()["results"][0]["outcome"], "done");
    }
    let dead = bed.get("/v1/dead").await.json();
    assert_eq!(
        (dead["messages"][0]["id"].clone(), dead["messages"][0]["reason"].clone()),
        (json!("bad"), json!("exhausted"))
    );
    assert_eq!(bed.get("/v1/messages/bad").await.json()["body"], "keep me");
    let counted = bed.post("/v1/dead/replay", r#"{"filter":{},"dry_run":true}"#).await.json();
    assert_eq!((counted["matched"].clone(), counted["done"].clone()), (json!(1), json!(0)));
    let replayed = bed.post("/v1/dead/replay", r#"{"ids":["bad","nobody"]}"#).await.json();
    assert_eq!((replayed["done"].clone(), replayed["unknown"].clone()), (json!(1), json!(1)));
    let received = bed.receive("q", 1).await;
    assert_eq!((received[0]["attempt"].clone(), received[0]["body"].clone()), (json!(1), json!("keep me")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_filter_never_goes_beyond_what_its_dry_run_counted() {
    let bed = Bed::new().await;
    for n in 0..3 {
        bed.send(json!({"topic": "q", "id": format!("old{n}"), "delay": "1h"})).await;
    }
    let counted = bed.post("/v1/messages/cancel", r#"{"filter":{"topic":"q"},"dry_run":true}"#).await.json();
    assert_eq!((&counted["matched"], &counted["more"]), (&json!(3), &json!(false)));
    // Time passes in milliseconds: what is accepted in the next one is new.
    let soon = counted["as_of"].clone();
    let count = r#"{"filter":{"topic":"q"},"dry_run":true}"#;
    while bed.post("/v1/messages/cancel", count).await.json()["as_of"] == soon {}
    for n in 0..2 {
        bed.send(json!({"topic": "q", "id": format!("new{n}"), "delay": "1h"})).await;
        bed.send(json!({"topic": "q", "id": format!("newer{n}"), "delay": "30m"})).await;
    }
    let wish =
        |matched: u64| json!({"filter": {"topic": "q"}, "as_of": soon, "matched": matched}).to_string();
    let part = bed.post("/v1/messages/cancel", wish(2)).await.json();
    assert_eq!(
        (&part["done"], &part["matched"], &part["more"]),
        (&json!(2), &json!(2), &json!(true)),
        "{part}"
    );
    let rest = bed.post("/v1/messages/cancel", wish(1)).await.json();
    assert_eq!((&rest["done"], &rest["more"]), (&json!(1), &json!(false)), "{rest}");
    let left = bed.get("/v1/messages?topic=q").await.json();
    let left: Vec<_> = left["messages"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(left, ["newer0", "newer1", "new0", "new1"]);
    for (bound, path) in [("\"matched\":1", "matched"), ("\"as_of\":0", "as_of")] {
        let refused = bed.post("/v1/messages/cancel", format!("{{\"ids\":[\"new0\"],{bound}}}")).await;
        assert_eq!((refused.code().as_str(), &refused.json()["path"]), ("bad_selection", &json!(path)));
    }
    let bad = bed.post("/v1/messages/cancel", r#"{"filter":{},"as_of":"yesterday"}"#).await;
    assert_eq!(bad.code(), "bad_time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fired_by_filter_is_due_at_the_call_and_not_at_the_count_before_it() {
    let bed = Bed::new().await;
    for n in 0..3 {
        bed.send(json!({"topic": "q", "id": format!("m{n}"), "delay": "1h", "max_lateness": "1m"})).await;
    }
    let count = async || {
        let counted =
            bed.post("/v1/messages/fire", r#"{"filter":{"topic":"q"},"dry_run":true}"#).await.json();
        assert_eq!(counted["matched"], 3, "{counted}");
        duly::parse_time(counted["as_of"].as_str().unwrap()).unwrap()
    };
    let counted = count().await;
    let mut later = count().await;
    while later <= counted {
        later = count().await;
    }
    let fire = async |matched: u64| {
        let wish = json!({"filter": {"topic": "q"}, "as_of": counted.as_millis(), "matched": matched});
        bed.post("/v1/messages/fire", wish.to_string()).await.json()
    };
    let part = fire(2).await;
    assert_eq!((&part["done"], &part["more"]), (&json!(2), &json!(true)), "{part}");
    let rest = fire(2).await;
    assert_eq!((&rest["done"], &rest["more"]), (&json!(1), &json!(false)), "none is fired twice: {rest}");
    for n in 0..3 {
        let due = bed.get(&format!("/v1/messages/m{n}")).await.json()["deliver_at_ms"].as_u64().unwrap();
        assert!(due >= later.as_millis(), "{due} lies before the call: late from the start");
    }
    assert_eq!(bed.receive("q", 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_dies_again_is_not_replayed_in_circles() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "bad", "retry": {"attempts": 1}})).await;
    let die = async || {
        let received = bed.receive("q", 1).await;
        let nack = json!({"receipts": [received[0]["receipt"]]}).to_string();
        assert_eq!(bed.post("/v1/queues/q/nack", nack).await.json()["results"][0]["outcome"], "done");
    };
    die().await;
    let counted = bed.post("/v1/dead/replay", r#"{"filter":{},"dry_run":true}"#).await.json();
    let wish = json!({"filter": {}, "as_of": counted["as_of"]}).to_string();
    assert_eq!(bed.post("/v1/dead/replay", wish.clone()).await.json()["done"], 1);
    die().await;
    let again = bed.post("/v1/dead/replay", wish).await.json();
    assert_eq!((&again["matched"], &again["done"]), (&json!(0), &json!(0)), "it died after the count");
    assert_eq!(bed.post("/v1/dead/replay", r#"{"filter":{}}"#).await.json()["done"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_there_after_a_restart() {
    let mut bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "kept", "delay": "1h"})).await;
    bed.send(json!({"topic": "b", "id": "soon", "delay": 10})).await;
    let receipt = bed.receive("b", 1).await[0]["receipt"].clone();
    bed.restart().await;
    assert_eq!(bed.get("/v1/messages/kept").await.json()["state"], "pending");
    // A receipt is good after a restart, too.
    let acked = bed.post("/v1/queues/b/ack", json!({"receipts": [receipt]}).to_string()).await.json();
    assert_eq!(acked["results"][0]["outcome"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_filters_hold() {
    let bed = Bed::new().await;
    for n in 0..25 {
        let topic = if n % 5 == 0 { "rare" } else { "often" };
        bed.send(json!({"topic": topic, "id": format!("m{n:02}"), "deliver_at": 2_000_000_000_000_u64 + n}))
            .await;
    }
    let (mut cursor, mut ids) = (String::new(), Vec::new());
    loop {
        let page = bed.get(&format!("/v1/messages?limit=10{cursor}")).await.json();
        ids.extend(page["messages"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap().to_owned()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids, (0..25).map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    let rare = bed.get("/v1/messages?topic=rare&due_to=2000000000011").await.json();
    assert_eq!(rare["messages"].as_array().unwrap().len(), 3);
    let moved = bed
        .post("/v1/messages/reschedule", r#"{"filter":{"topic":"rare"},"deliver_at":2000000000020}"#)
        .await
        .json();
    assert_eq!(
        (moved["done"].clone(), moved["matched"].clone()),
        (json!(4), json!(4)),
        "the one already there is left alone"
    );
    let dry = bed.post("/v1/messages/cancel", r#"{"filter":{"topic":"often"},"dry_run":true}"#).await.json();
    assert_eq!((dry["matched"].clone(), dry["done"].clone()), (json!(20), json!(0)));
    let cancelled = bed.post("/v1/messages/cancel", r#"{"filter":{"topic":"often"}}"#).await.json();
    assert_eq!(cancelled["done"], 20);
    let fired = bed.post("/v1/messages/fire", r#"{"filter":{}}"#).await.json();
    assert_eq!(fired["done"], 5);
    assert_eq!(bed.receive("rare", 10).await.len(), 5);
    let totals = bed.get("/v1/stats").await.json()["totals"].clone();
    assert_eq!((totals["balanced"].clone(), totals["cancelled"].clone()), (json!(true), json!(20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_already_is_not_too_late_in_a_change_of_many_either() {
    let bed = Bed::new().await;
    for id in ["cancelled", "waits"] {
        bed.send(json!({"topic": "q", "id": id, "delay": "1h"})).await;
    }
    bed.send(json!({"topic": "q", "id": "held"})).await;
    assert_eq!(bed.receive("q", 1).await[0]["id"], "held");
    assert_eq!(bed.call(Method::DELETE, "/v1/messages/cancelled", "").await.status, 200);
    let counts = |answer: &serde_json::Value| {
        ["matched", "done", "already", "too_late", "unknown"].map(|name| answer[name].as_u64().unwrap())
    };
    let ids = json!(["cancelled", "waits", "held", "nobody"]);
    let dry = bed.post("/v1/messages/cancel", json!({"ids": ids, "dry_run": true}).to_string()).await.json();
    assert_eq!(counts(&dry), [3, 0, 1, 1, 1], "{dry}");
    let real = bed.post("/v1/messages/cancel", json!({"ids": ids}).to_string()).await.json();
    assert_eq!(counts(&real), [3, 1, 1, 1, 1], "{real}");
    // To fire what is cancelled is too late.
    let fired = bed.post("/v1/messages/fire", json!({"ids": ["cancelled"]}).to_string()).await.json();
    assert_eq!(counts(&fired), [1, 0, 0, 1, 0], "{fired}");
}
