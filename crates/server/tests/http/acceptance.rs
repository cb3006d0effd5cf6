//! What is refused or told when a message is sent, rather than found out when it is due.

use std::fs;

use duly_core::{Lane, Monotonic, Now, Store, Topic};
use duly_server::config::{Config, Flags, Sources};
use duly_stores::{EmbeddedStore, embedded::Options};
use http::Method;
use serde_json::{Value, json};

use crate::{bed::Bed, target::Target};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn refused(bed: &Bed, message: Value) -> (String, Option<String>) {
    let answer = bed.post("/v1/messages", message.to_string()).await;
    let path = answer.json()["path"].as_str().map(str::to_owned);
    (answer.code(), path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_delete_says_that_it_is_so_already() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "one", "delay": "1h"})).await;
    let first = bed.call(Method::DELETE, "/v1/messages/one", "").await.json();
    assert_eq!(first, json!({"id": "one", "state": "cancelled"}));
    let again = bed.call(Method::DELETE, "/v1/messages/one", "").await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json(), json!({"id": "one", "state": "cancelled", "already": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_with_another_time_says_that_the_first_time_stands() {
    let bed = Bed::new().await;
    let at = |time: &str| json!({"topic": "a", "id": "one", "deliver_at": time}).to_string();
    let first = bed.post("/v1/messages", at("2030-01-01T00:00:00Z")).await.json();
    assert_eq!(first["kept"], Value::Null);
    let same = bed.post("/v1/messages", at("2030-01-01T01:00:00+01:00")).await.json();
    assert_eq!((same["duplicate"].clone(), same["kept"].clone()), (json!(true), Value::Null));
    let other = bed.post("/v1/messages", at("2031-01-01T00:00:00Z")).await;
    assert_eq!(other.status, 200);
    let other = other.json();
    assert_eq!((other["duplicate"].clone(), other["kept"].clone()), (json!(true), json!("time")));
    assert_eq!(other["deliver_at"], "2030-01-01T00:00:00.000Z");
    let line = bed.post("/v1/messages/batch", at("2031-01-01T00:00:00Z")).await.lines();
    assert_eq!(line[0]["kept"], "time");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_mean_something_else_are_refused() {
    let bed = Bed::new().await;
    let now = bed.duly().now().as_millis();
    for seconds in [json!(now / 1_000), json!((now / 1_000).to_string())] {
        let answer = bed.post("/v1/messages", json!({"topic": "a", "deliver_at": seconds}).to_string()).await;
        assert_eq!(answer.code(), "bad_time", "{seconds}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("looks like seconds"), "{answer:?}");
    }
    // The last millisecond of 2000 is refused, the first of 2001 is a time. As a text, no time is taken for seconds.
    for early in [json!(978_307_199_999_u64), json!("978307199999"), json!(1)] {
        let (code, path) = refused(&bed, json!({"topic": "a", "deliver_at": early})).await;
        assert_eq!((code.as_str(), path.as_deref()), ("bad_time", Some("deliver_at")), "{early}");
    }
    for past in [json!(978_307_200_000_u64), json!("978307200000"), json!("2000-12-31T23:59:59.999Z")] {
        let answer = bed.post("/v1/messages", json!({"topic": "b", "deliver_at": past}).to_string()).await;
        assert_eq!(answer.status, 201, "{past}: {answer:?}");
    }
    bed.send(json!({"topic": "a", "id": "one", "delay": "1h"})).await;
    let moved = format!("{{\"deliver_at\":{}}}", now / 1_000);
    assert_eq!(bed.call(Method::PATCH, "/v1/messages/one", moved).await.code(), "bad_time");

    for far in
        [json!("9999-12-31T23:59:59Z"), json!(253_402_300_799_999_u64), json!("9999-12-31T00:00:00+14:00")]
    {
        let (code, path) = refused(&bed, json!({"topic": "a", "deliver_at": far})).await;
        assert_eq!((code.as_str(), path.as_deref()), ("too_far", Some("deliver_at")), "{far}");
    }
    let (code, _) = refused(&bed, json!({"topic": "a", "deliver_at": "2030-01-01T00:00:00+14:01"})).await;
    assert_eq!(code, "bad_time");
    let leap = json!({"topic": "a", "deliver_at": "2030-12-31T23:59:60Z"});
    let leap = bed.post("/v1/messages", leap.to_string()).await.json();
    assert_eq!(leap["deliver_at"], "2031-01-01T00:00:00.000Z", "never early");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_of_exactly_the_limit_is_accepted_and_a_millisecond_more_is_not() {
    let bed = Bed::new().await;
    let limit = 3_653 * 86_400_000_u64;
    for round in 0..20 {
        bed.send(json!({"topic": "a", "id": format!("m-{round}"), "delay": limit})).await;
        let moved = json!({"delay": limit}).to_string();
        let moved = bed.call(Method::PATCH, &format!("/v1/messages/m-{round}"), moved).await;
        assert_eq!(moved.status, 200, "{moved:?}");
    }
    bed.send(json!({"topic": "a", "delay": "3653d"})).await;
    assert_eq!(refused(&bed, json!({"topic": "a", "delay": limit + 1})).await.0, "too_far");
    // A dry run is refused as the real call is, whether anything matches or not.
    let far = |dry_run: bool| json!({"filter": {"topic": "b"}, "delay": limit + 1, "dry_run": dry_run});
    for dry_run in [true, false] {
        let answer = bed.post("/v1/messages/reschedule", far(dry_run).to_string()).await;
        assert_eq!((answer.code().as_str(), answer.json()["path"].clone()), ("too_far", json!("delay")));
        let ids = json!({"ids": ["m-1"], "deliver_at": "9999-01-01T00:00:00Z", "dry_run": dry_run});
        let answer = bed.post("/v1/messages/reschedule", ids.to_string()).await;
        assert_eq!(answer.code(), "too_far", "{dry_run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_url_can_hold_receipts_and_types_are_refused_by_their_place() {
    let bed = Bed::new().await;
    for dots in [".", ".."] {
        let (code, path) = refused(&bed, json!({"topic": "a", "id": dots})).await;
        assert_eq!((code.as_str(), path.as_deref()), ("bad_id", Some("id")));
        let (code, path) = refused(&bed, json!({"topic": dots})).await;
        assert_eq!((code.as_str(), path.as_deref()), ("bad_topic", Some("topic")));
        let line = bed.post("/v1/messages/batch", json!({"topic": dots}).to_string()).await.lines();
        assert_eq!(line[0]["error"]["code"], "bad_topic");
        // What no message can have, nobody can receive, list, settle or pause.
        let topic = json!({"topic": dots}).to_string();
        let escaped = dots.replace('.', "%2E");
        let answer = bed.post("/v1/receive", json!({"topics": ["a", dots]}).to_string()).await;
        assert_eq!((answer.code().as_str(), &answer.json()["path"]), ("bad_topic", &json!("topics[1]")));
        for answer in [
            bed.post(&format!("/v1/queues/{escaped}/receive"), "").await,
            bed.post(&format!("/v1/queues/{escaped}/ack"), r#"{"receipts":[]}"#).await,
            bed.post(&format!("/v1/queues/{escaped}/pause"), "").await,
            bed.post(&format!("/v1/queues/{escaped}/resume"), "").await,
            bed.post(&format!("/v1/queues/{dots}/resume"), "").await,
            bed.get(&format!("/v1/events?topic={dots}")).await,
            bed.get(&format!("/v1/events?topic={escaped}")).await,
            bed.get(&format!("/v1/messages?topic={dots}")).await,
            bed.get(&format!("/v1/dead?topic={dots}")).await,
        ] {
            assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "bad_topic"), "{answer:?}");
            assert_eq!(answer.json()["path"], "topic", "{answer:?}");
        }
        for answer in [
            bed.post("/v1/messages/cancel", format!(r#"{{"filter":{topic},"dry_run":true}}"#)).await,
            bed.post("/v1/dead/purge", format!(r#"{{"filter":{topic}}}"#)).await,
        ] {
            assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "bad_topic"), "{answer:?}");
            assert_eq!(answer.json()["path"], "filter.topic", "{answer:?}");
        }
    }
    for verb in ["ack", "nack", "extend"] {
        let receipts = json!({"receipts": ["1.1.a", "1.1.b", "x"]}).to_string();
        let answer = bed.post(&format!("/v1/queues/a/{verb}"), receipts).await;
        assert_eq!(
            (answer.code().as_str(), answer.json()["path"].clone()),
            ("bad_receipt", json!("receipts[2]"))
        );
    }
    let (none, long) = (r#"{"receipts":[]}"#, "x".repeat(256));
    for (verb, body) in
        [("ack", none), ("nack", none), ("extend", none), ("receive", ""), ("pause", ""), ("resume", "")]
    {
        let answer = bed.post(&format!("/v1/queues/{long}/{verb}"), body).await;
        assert_eq!(answer.code(), "bad_topic", "{verb}");
    }
    for types in ["foo", "accepted,foo", "", "accepted,"] {
        let answer = bed.get(&format!("/v1/events?types={types}")).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "bad_query"), "{types}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_continue_is_told_at_once_that_its_body_is_too_large() {
    let bed = Bed::new().await;
    let head = |path: &str, length: u64| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let answer = bed.raw(head("/v1/messages", 1 << 33).as_bytes(), "body_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Within the limit, and of a batch, which has none, the body is wanted.
    for (path, length) in [("/v1/messages", 100), ("/v1/messages/batch", 1 << 33)] {
        let answer = bed.raw(head(path, length).as_bytes(), "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 100"), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_call_travels_with_its_messages_and_is_no_part_of_their_content() {
    let target = Target::new().await;
    let bed = Bed::with(|config| target.configure(config, "hook")).await;
    let headers = [("traceparent", PARENT), ("tracestate", "a=1")];
    let post = async |path: &str, message: Value, headers: &[(&str, &str)]| {
        bed.call_with(Method::POST, path, message.to_string(), headers).await
    };
    let pushed = json!({"sink": "hook", "topic": "t", "id": "pushed", "body": "x"});
    assert_eq!(post("/v1/messages", pushed, &headers).await.status, 201);
    let (_, arrived, _) = target.next().await;
    assert_eq!(
        (&arrived["traceparent"], &arrived["tracestate"]),
        (&PARENT.parse().unwrap(), &"a=1".parse().unwrap())
    );

    let queued = json!({"topic": "q", "id": "queued", "body": "x"});
    assert_eq!(post("/v1/messages/batch", queued.clone(), &headers).await.lines()[0]["id"], "queued");
    // The client tries again, in another span and in none.
    let other = PARENT.replace("00f067aa0ba902b7", "00f067aa0ba902b8");
    for headers in [&[("traceparent", other.as_str())][..], &[]] {
        let again = post("/v1/messages", queued.clone(), headers).await;
        assert_eq!((again.status.as_u16(), again.json()["duplicate"].clone()), (200, json!(true)));
    }
    assert_eq!(bed.receive("q", 1).await[0]["properties"]["traceparent"], PARENT);
    // What is no trace is nobody's fault.
    let odd = [("traceparent", "nonsense")];
    assert_eq!(post("/v1/messages", json!({"topic": "q"}), &odd).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_points_to_its_explanation_in_the_readers_language() {
    let bed = Bed::new().await;
    let problem = bed.get("/v1/messages/nobody").await.json();
    let (page, anchor) = problem["type"].as_str().unwrap().split_once('#').unwrap();
    let text = async |path: &str, language: &str| {
        let answer = bed.call_with(Method::GET, path, "", &[("accept-language", language)]).await;
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{answer:?}");
        String::from_utf8(answer.body.to_vec()).unwrap()
    };
    for (path, language, word) in [
        (page.to_owned(), "en-GB", "never accepted"),
        (page.to_owned(), "zh-CN,zh;q=0.9", "从未被接受"),
        (format!("{page}?lang=zh"), "en", "从未被接受"),
        (format!("{page}?lang=en"), "zh", "never accepted"),
    ] {
        let text = text(&path, language).await;
        assert!(text.contains(&format!("<h2 id=\"{anchor}\">")) && text.contains(word), "{path} {language}");
    }
}

/// One sink of each kind, at an address where nobody is: what is refused here is refused without asking anybody.
const SINKS: &str = r#"
sinks.hook = {kind = "webhook", url = "http://127.0.0.1:1/base", headers = {x-fixed = "1"}}
sinks.kafka = {kind = "kafka", brokers = "127.0.0.1:1"}
sinks.rabbit = {kind = "rabbitmq", url = "amqp://127.0.0.1:1", tag_in_key = true}
sinks.nats = {kind = "nats", url = "nats://127.0.0.1:1"}
sinks.mqtt = {kind = "mqtt", url = "mqtt://127.0.0.1:1"}
sinks.mqtt3 = {kind = "mqtt", url = "mqtt://127.0.0.1:1", version = "3.1.1"}
sinks.active = {kind = "activemq", url = "stomp://127.0.0.1:1"}
sinks.rocket = {kind = "rocketmq", namesrv = "127.0.0.1:1"}
sinks.redis = {kind = "redis_streams", url = "redis://127.0.0.1:1"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sink_can_never_take_is_refused_when_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duly.toml");
    fs::write(&file, SINKS).unwrap();
    let sources = Sources { file: Some(file), environment: Vec::new(), flags: Flags::default() };
    let sinks = Config::load(&sources).unwrap_or_else(|problems| panic!("{problems}")).sinks;
    let bed = Bed::with(|config| config.sinks = sinks).await;

    let long = "x".repeat(250);
    for (sink, topic) in [
        ("hook", "a/../b"),
        ("hook", "a//b"),
        ("hook", "https://elsewhere.example/"),
        ("kafka", "no topic"),
        ("kafka", long.as_str()),
        ("kafka", "__consumer_offsets"),
        ("kafka", "__transaction_state"),
        ("kafka", "__share_group_state"),
        ("nats", "a..b"),
        ("nats", "$SYS.a"),
        ("nats", "a.*"),
        ("mqtt", "a/+"),
        ("mqtt", "$SYS/a"),
        ("active", "a,b"),
        ("active", "ActiveMQ.Advisory"),
        ("rabbit", "amq.rabbitmq.trace/x"),
        ("rocket", "TBW102"),
        ("rocket", long.as_str()),
    ] {
        let (code, path) = refused(&bed, json!({"sink": sink, "topic": topic, "body": "x"})).await;
        assert_eq!((code.as_str(), path.as_deref()), ("bad_topic", Some("topic")), "{sink} {topic}");
        let line = json!({"sink": sink, "topic": topic, "body": "x"}).to_string();
        assert_eq!(bed.post("/v1/messages/batch", line).await.lines()[0]["error"]["code"], "bad_topic");
    }
    // Routing key and tag together are longer than AMQP has room for.
    let tagged = json!({"sink": "rabbit", "topic": long, "tag": "t".repeat(5), "body": "x"});
    assert_eq!(refused(&bed, tagged).await, ("bad_topic".into(), Some("topic".into())));
    let reserved = json!({"sink": "redis", "topic": "duly:{main}:paused"});
    assert_eq!(refused(&bed, reserved).await.0, "reserved_topic");
    let empty = json!({"sink": "rocket", "topic": "a"});
    assert_eq!(refused(&bed, empty).await.0, "bad_body");

    let words = "w".repeat(300);
    for (sink, name, value) in [
        ("hook", "a b", "1"),
        ("hook", "Host", "1"),
        ("hook", "x-fixed", "1"),
        ("kafka", "content-type", "1"),
        ("rabbit", "CC", "1"),
        ("rabbit", "reply-to", words.as_str()),
        ("nats", "Nats-Msg-Id", "1"),
        ("nats", "a b", "1"),
        ("mqtt", "content-type", "1"),
        ("active", "priority", "1"),
        ("active", "JMSType", "1"),
        ("rocket", "KEYS", "1"),
        ("rocket", "empty", ""),
        ("redis", "body", "1"),
    ] {
        let message = json!({"sink": sink, "topic": "a", "body": "x", "properties": {name: value}});
        let (code, path) = refused(&bed, message).await;
        assert_eq!(
            (code, path),
            ("bad_property".into(), Some(format!("properties.{name}"))),
            "{sink} {name}"
        );
    }
    // More than one frame of AMQP, whose end would be that of all messages under way.
    let many: serde_json::Map<String, serde_json::Value> =
        (0..33).map(|n| (format!("p{n}"), json!("x".repeat(4_000)))).collect();
    let large = json!({"sink": "rabbit", "topic": "a", "properties": many});
    assert_eq!(refused(&bed, large).await, ("bad_property".into(), Some("properties".into())));
    let lost = json!({"sink": "mqtt3", "topic": "a", "properties": {"x": "1"}});
    assert_eq!(refused(&bed, lost).await, ("bad_property".into(), Some("properties".into())));

    // The trace of a call is nobody's wish: no sink refuses a message for it.
    for sink in ["hook", "kafka", "rabbit", "nats", "mqtt", "mqtt3", "active", "rocket", "redis"] {
        let message = json!({"sink": sink, "topic": "a", "body": "x", "delay": "1h"}).to_string();
        let headers = [("traceparent", PARENT)];
        let answer = bed.call_with(Method::POST, "/v1/messages", message, &headers).await;
        assert_eq!(answer.status, 201, "{sink}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_an_older_name_that_is_paused_can_be_resumed() {
    let mut bed = Bed::new().await;
    bed.stop().await;
    // As an older version did it: the store takes such a name.
    let now = Now::new(0, Monotonic::from_micros(0));
    let store = EmbeddedStore::open(bed.data(), Options::default(), now).await.unwrap();
    store.set_paused(&Lane::Queue(Topic::parse("..").unwrap()), true).await.unwrap();
    store.close().await.unwrap();
    bed.restart().await;
    let is_paused = async || bed.duly().lanes().await.unwrap().iter().any(|status| status.paused);
    assert!(is_paused().await);
    assert_eq!(bed.post("/v1/queues/%2E/resume", "").await.code(), "bad_topic", "another one");
    assert_eq!(bed.post("/v1/queues/%2E%2E/resume", "").await.status, 204);
    assert!(!is_paused().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_beyond_the_limit_is_refused_by_the_field_that_said_it_and_in_a_unit_that_fits() {
    let bed = Bed::with(|config| config.limits.delay_max = duly::minutes(1)).await;
    for (field, value) in
        [("delay", json!("2m")), ("deliver_at", json!("2100-01-01T00:00:00Z")), ("level", json!("P0"))]
    {
        let answer = bed.post("/v1/messages", json!({"topic": "a", field: value}).to_string()).await;
        assert_eq!((answer.code().as_str(), &answer.json()["path"]), ("too_far", &json!(field)));
        assert_eq!(answer.json()["detail"], "due more than 1m from now");
    }
    let answer = bed.call(Method::DELETE, "/v1/messages/%E8%AE%A2", "").await;
    assert_eq!((answer.code().as_str(), &answer.json()["path"]), ("bad_id", &json!("id")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_property_stands_once_and_a_query_only_where_there_is_one() {
    let bed = Bed::new().await;
    let answer = bed.post("/v1/messages", r#"{"topic":"a","properties":{"b":"1","b":"2"}}"#).await;
    assert_eq!((answer.code().as_str(), &answer.json()["path"]), ("bad_field", &json!("properties.b")));
    bed.send(json!({"topic": "a", "id": "one", "properties": null, "delay": "1h"})).await;
    for (method, path) in [
        (Method::GET, "/v1/stats"),
        (Method::HEAD, "/v1/stats"),
        (Method::GET, "/v1/messages/one"),
        (Method::POST, "/v1/messages/one/fire"),
        (Method::DELETE, "/v1/messages/one"),
        (Method::GET, "/v1/messages"),
        (Method::GET, "/errors"),
        (Method::GET, "/livez"),
    ] {
        let answer = bed.call(method.clone(), &format!("{path}?foo=1"), "").await;
        assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
    }
    assert_eq!(bed.get("/v1/stats?foo=1").await.code(), "bad_query");
    for path in ["/v1/stats?", "/errors?lang=zh", "/v1/messages?limit=1", "/v1/forecast?buckets=1"] {
        assert_eq!(bed.get(path).await.status, 200, "{path}");
    }
    assert_eq!(bed.get("/v1/messages/one").await.json()["state"], "pending", "nothing was done");
}
