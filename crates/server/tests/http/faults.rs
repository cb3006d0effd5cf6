//! Bad input: each is answered with its documented code, and loses nothing.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, HttpResponse};

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_message_has_its_code_and_its_path() {
    let bed = Bed::new().await;
    let cases = [
        ("", "bad_json", None),
        ("{", "bad_json", None),
        ("{\"topic\":\"a\"} x", "bad_json", None),
        ("\u{feff}{}", "bad_json", None),
        ("[]", "bad_field", None),
        (r#"["a"]"#, "bad_field", None),
        ("null", "bad_field", None),
        ("{}", "bad_field", Some("topic")),
        (r#"{"topic":7}"#, "bad_field", Some("topic")),
        (r#"{"topic":"a","colour":"red"}"#, "bad_field", Some("colour")),
        (r#"{"topic":"a","topic":"b"}"#, "bad_field", Some("topic")),
        (r#"{"topic":""}"#, "bad_topic", Some("topic")),
        (r#"{"topic":"a\u0000"}"#, "bad_topic", Some("topic")),
        (r#"{"topic":"a","id":"a/b"}"#, "bad_id", Some("id")),
        (r#"{"topic":"a","id":""}"#, "bad_id", Some("id")),
        (r#"{"topic":"a","sink":"kafka"}"#, "unknown_sink", Some("sink")),
        (r#"{"topic":"a","sink":""}"#, "bad_sink", Some("sink")),
        (r#"{"topic":"a","sink":"a/b"}"#, "bad_sink", Some("sink")),
        (r#"{"topic":"a","tag":""}"#, "bad_tag", Some("tag")),
        (r#"{"topic":"a","key":"\n"}"#, "bad_key", Some("key")),
        (r#"{"topic":"a","delay":"1m","deliver_at":1794852900000}"#, "two_times", Some("delay")),
        (r#"{"topic":"a","delay":"1m","level":"P0"}"#, "two_times", Some("delay")),
        (r#"{"topic":"a","delay":"soon"}"#, "bad_delay", Some("delay")),
        (r#"{"topic":"a","delay":-1}"#, "bad_field", Some("delay")),
        (r#"{"topic":"a","delay":1.5}"#, "bad_field", Some("delay")),
        (r#"{"topic":"a","delay":"11y"}"#, "bad_delay", Some("delay")),
        (r#"{"topic":"a","delay":"4000d"}"#, "too_far", Some("delay")),
        (r#"{"topic":"a","deliver_at":"tomorrow"}"#, "bad_time", Some("deliver_at")),
        (r#"{"topic":"a","deliver_at":"2026-11-15T18:15:00"}"#, "bad_time", Some("deliver_at")),
        (r#"{"topic":"a","level":"P9"}"#, "unknown_level", Some("level")),
        (r#"{"topic":"a","body":"x","json":1}"#, "two_bodies", Some("body")),
        (r#"{"topic":"a","body_base64":"%"}"#, "bad_body", Some("body_base64")),
        (r#"{"topic":"a","priority":10}"#, "bad_priority", Some("priority")),
        (r#"{"topic":"a","priority":300}"#, "bad_field", Some("priority")),
        (r#"{"topic":"a","max_lateness":"x"}"#, "bad_delay", Some("max_lateness")),
        (r#"{"topic":"a","retry":{"attempts":0}}"#, "bad_retry", Some("retry.attempts")),
        (r#"{"topic":"a","retry":{"tries":1}}"#, "bad_field", Some("retry.tries")),
        (r#"{"topic":"a","retry":{"min":"2s","max":"1s"}}"#, "bad_retry", Some("retry.min")),
        (r#"{"topic":"a","properties":{"a":1}}"#, "bad_field", Some("properties.a")),
        (r#"{"topic":"a","properties":{"duly-id":"x"}}"#, "reserved_property", Some("properties.duly-id")),
        (r#"{"topic":"a","properties":{"a":"x\r\nEvil: 1"}}"#, "bad_property", Some("properties.a")),
    ];
    for (body, code, path) in cases {
        let answer = bed.post("/v1/messages", body).await;
        assert_eq!(answer.code(), code, "{body}: {answer:?}");
        assert_eq!(answer.json()["path"].as_str(), path, "{body}");
    }
    assert_eq!(bed.post("/v1/messages", vec![b'"', 0xff, b'"']).await.code(), "bad_json");
    assert_eq!(bed.get("/v1/stats").await.json()["totals"]["accepted"], 0, "nothing was taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_a_problem_like_any_other() {
    let bed = Bed::new().await;
    assert_eq!(bed.get("/v1/messages/%FF").await.code(), "no_such_route");
    assert_eq!(bed.post("/v1/queues/a/receive", "[]").await.code(), "bad_field");
    for path in ["/v1/messages", "/v1/messages/batch"] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let answer = bed.raw(request.as_bytes(), "bad_encoding").await;
        assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    }
    let two = b"GET /v1/stats HTTP/1.1\r\nhost: localhost\r\nhost: other.example\r\n\r\n";
    let answer = bed.raw(two, "bad_host").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_may_be_as_large_as_the_limit_and_no_byte_larger() {
    let bed = Bed::new().await;
    for (extra, status) in [(0, 201), (1, 413)] {
        let bytes = (1 << 20) + extra;
        // As plain text, as text that is written with six bytes for one, and as base64.
        let plain = json!({"topic": "a", "body": "x".repeat(bytes)}).to_string();
        let escaped = format!("{{\"topic\":\"a\",\"body\":\"{}\"}}", "\\u0001".repeat(bytes));
        let base64 = format!("{{\"topic\":\"a\",\"body_base64\":\"{}\"}}", base64(bytes));
        for body in [plain, escaped, base64] {
            let answer = bed.post("/v1/messages", body).await;
            assert_eq!(answer.status, status);
            if status == 413 {
                assert_eq!(answer.code(), "body_too_large");
            }
        }
    }
    // Far larger than what is read: the answer arrives all the same, instead of a broken connection.
    for _ in 0..10 {
        let answer = bed.post("/v1/messages", vec![b' '; 32 << 20]).await;
        assert_eq!(answer.code(), "body_too_large");
    }
    let received = bed.receive("a", 10).await;
    assert_eq!(received.len(), 3);
}

fn base64(zeros: usize) -> String {
    let mut text = "AAAA".repeat(zeros / 3);
    text.push_str(["", "AA==", "AAA="][zeros % 3]);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_queries_and_selections_are_checked() {
    let bed = Bed::new().await;
    let cases = [
        (Method::GET, "/nowhere", "", "no_such_route"),
        (Method::GET, "/v1/messages/a/b", "", "no_such_route"),
        (Method::GET, "/v1/messages/a%2Fb", "", "bad_id"),
        (Method::GET, "/v1/messages/nobody", "", "not_found"),
        (Method::PUT, "/v1/messages", "", "method_not_allowed"),
        (Method::GET, "/v1/messages?colour=red", "", "bad_query"),
        (Method::GET, "/v1/messages?limit=many", "", "bad_query"),
        (Method::GET, "/v1/messages?limit=0", "", "too_many"),
        (Method::GET, "/v1/messages?limit=1001", "", "too_many"),
        (Method::GET, "/v1/messages?state=lost", "", "bad_state"),
        (Method::GET, "/v1/messages?cursor=x", "", "bad_cursor"),
        (Method::GET, "/v1/messages?due_from=x", "", "bad_time"),
        (Method::GET, "/v1/dead?state=pending", "", "bad_state"),
        (Method::GET, "/v1/forecast?buckets=0", "", "bad_span"),
        (Method::GET, "/v1/forecast?from=2000000000000&to=1000000000000", "", "bad_span"),
        (Method::GET, "/v1/forecast?from=x", "", "bad_time"),
        (Method::POST, "/v1/messages/cancel", "{}", "bad_selection"),
        (Method::POST, "/v1/messages/cancel", r#"{"ids":["a"],"filter":{}}"#, "bad_selection"),
        (Method::POST, "/v1/messages/cancel", r#"{"ids":["a","b c"]}"#, "bad_id"),
        (Method::POST, "/v1/messages/reschedule", r#"{"filter":{}}"#, "no_time"),
        (Method::POST, "/v1/messages/fire", r#"{"filter":{"due_to":"x"}}"#, "bad_time"),
        (Method::POST, "/v1/dead/purge", r#"{"filter":{"colour":"x"}}"#, "bad_field"),
        (Method::POST, "/v1/queues/a/receive", r#"{"max":0}"#, "too_many"),
        (Method::POST, "/v1/queues/a/receive", r#"{"max":1001}"#, "too_many"),
        (Method::POST, "/v1/queues/a/receive", r#"{"wait":"61s"}"#, "too_long"),
        (Method::POST, "/v1/queues/a/receive", r#"{"lease":0}"#, "bad_delay"),
        (Method::POST, "/v1/queues/a/ack", r#"{"receipts":["x"]}"#, "bad_receipt"),
        (Method::POST, "/v1/queues/a/ack", "{}", "bad_field"),
        (Method::POST, "/v1/queues/a/nack", r#"{"receipts":[],"delay":"x"}"#, "bad_delay"),
        (Method::POST, "/v1/queues/a/extend", r#"{"receipts":[],"lease":"1d"}"#, "too_long"),
        (Method::POST, "/v1/sinks/nobody/pause", "", "no_such_sink"),
        (Method::POST, "/v1/sinks/nobody/resume", "", "no_such_sink"),
        (Method::POST, "/v1/sinks/nobody/probe", "", "no_such_sink"),
    ];
    for (method, path, body, code) in cases {
        let answer = bed.call(method.clone(), path, body).await;
        assert_eq!(answer.code(), code, "{method} {path} {body}: {answer:?}");
    }
    let many: Vec<_> = (0..10_001).map(|n| n.to_string()).collect();
    assert_eq!(bed.post("/v1/messages/cancel", json!({"ids": many}).to_string()).await.code(), "too_many");
    let many: Vec<_> = (0..1_001).map(|n| n.to_string()).collect();
    assert_eq!(bed.post("/v1/queues/a/ack", json!({"receipts": many}).to_string()).await.code(), "too_many");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_pending_than_allowed_is_refused_and_deliveries_go_on() {
    let bed = Bed::with(|config| config.limits.pending_max = 2).await;
    bed.send(json!({"topic": "a"})).await;
    bed.send(json!({"topic": "a", "delay": "1h"})).await;
    assert_eq!(bed.post("/v1/messages", r#"{"topic":"a"}"#).await.code(), "too_many_pending");
    assert_eq!(bed.receive("a", 10).await.len(), 1);
    bed.send(json!({"topic": "a", "delay": "1h"})).await;
}

/// The schema itself, wherever a reference leads.
fn resolved<'a>(api: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.map_or(schema, |name| &api["components"]["schemas"][name])
}

/// Bodies that have an array in the place of one of their objects, at any depth, each with the path of the array. `body` is a
/// valid body, and `put` puts a value in the place of `schema`.
fn arrays_for_objects(
    api: &Value,
    schema: &Value,
    path: &str,
    put: &dyn Fn(Value) -> Value,
    found: &mut Vec<(Value, String)>,
) {
    let schema = resolved(api, schema);
    for key in ["oneOf", "anyOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            arrays_for_objects(api, part, path, put, found);
        }
    }
    // Some are "object or null".
    let is_object = schema["type"] == "object"
        || schema["type"].as_array().is_some_and(|types| types.iter().any(|one| one == "object"));
    if !is_object {
        return;
    }
    for array in [json!([]), json!(["q", "order"]), json!([3]), json!([null])] {
        found.push((put(array), path.to_owned()));
    }
    for (field, part) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        let inside = |value: Value| {
            let mut object = json!({});
            if path == *field {
                for needed in schema["required"].as_array().into_iter().flatten() {
                    let needed = needed.as_str().unwrap();
                    let is_list = schema["properties"][needed]["type"] == "array";
                    object[needed] = if is_list { json!([]) } else { json!("q") };
                }
            }
            object[field] = value;
            put(object)
        };
        arrays_for_objects(api, part, &path, &inside, found);
    }
}

/// Serde reads an array as the fields of a struct in their order: `{"filter":[]}` would be a filter that matches everything.
#[tokio::test(flavor = "multi_thread")]
async fn an_array_in_the_place_of_an_object_is_refused_in_every_request() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "waits", "delay": "1h"})).await;
    let api = bed.get("/openapi.json").await.json();
    let mut paths = BTreeSet::new();
    for (route, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let mut bodies = Vec::new();
            if route.ends_with("/batch") {
                arrays_for_objects(&api, &schema["items"], "", &|body| body, &mut bodies);
            } else {
                arrays_for_objects(&api, schema, "", &|body| body, &mut bodies);
            }
            let method: Method = method.to_uppercase().parse().unwrap();
            let target = route.replace("{topic}", "q").replace("{id}", "waits");
            for (body, path) in bodies {
                let what = format!("{method} {route} {body}");
                let refusal = if route.ends_with("/batch") {
                    // One line for an object. An array of them is the batch itself.
                    let items = json!([body]).to_string();
                    bed.call(method.clone(), &target, items).await.json()[0]["error"].clone()
                } else {
                    let answer = bed.call(method.clone(), &target, body.to_string()).await;
                    assert_eq!(answer.status, 422, "{what}: {answer:?}");
                    answer.json()
                };
                assert_eq!(refusal["code"], "bad_field", "{what}: {refusal}");
                assert_eq!(refusal["path"].as_str().unwrap_or_default(), path, "{what}: {refusal}");
                paths.insert(path);
            }
        }
    }
    let wanted = ["", "filter", "properties", "retry"].map(str::to_owned);
    assert_eq!(paths, BTreeSet::from(wanted), "objects within requests");
    let kept = bed.get("/v1/messages/waits").await.json();
    assert_eq!(kept["state"], "pending", "{kept}");
}

/// In milliseconds they would be January 1970: a filter that begins there matches everything.
#[tokio::test(flavor = "multi_thread")]
async fn seconds_are_refused_wherever_messages_are_selected_by_time() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "waits", "delay": "1h"})).await;
    for seconds in [json!(1_767_225_600), json!("1767225600"), json!(0), json!(978_307_199_999_u64)] {
        let changes =
            ["messages/cancel", "messages/reschedule", "messages/fire", "dead/replay", "dead/purge"];
        for (change, field) in changes.iter().flat_map(|change| [(change, "due_from"), (change, "due_to")]) {
            let mut body = json!({"filter": {field: seconds}});
            if change.ends_with("reschedule") {
                body["delay"] = json!("2h");
            }
            let answer = bed.post(&format!("/v1/{change}"), body.to_string()).await;
            assert_eq!(answer.code(), "bad_time", "{change} {body}: {answer:?}");
            assert_eq!(answer.json()["path"], format!("filter.{field}"), "{change} {body}");
        }
        let body = json!({"filter": {}, "as_of": seconds}).to_string();
        for change in ["messages/cancel", "messages/fire"] {
            let answer = bed.post(&format!("/v1/{change}"), body.clone()).await;
            assert_eq!(
                (answer.code().as_str(), &answer.json()["path"]),
                ("bad_time", &json!("as_of")),
                "{body}"
            );
        }
        let text = seconds.to_string().replace('"', "");
        for (list, field) in [
            ("messages", "due_from"),
            ("messages", "due_to"),
            ("dead", "due_from"),
            ("dead", "due_to"),
            ("forecast", "from"),
            ("forecast", "to"),
        ] {
            let answer = bed.get(&format!("/v1/{list}?{field}={text}")).await;
            assert_eq!(
                (answer.code().as_str(), &answer.json()["path"]),
                ("bad_time", &json!(field)),
                "{list}"
            );
        }
    }
    let answer = bed.post("/v1/messages/cancel", r#"{"filter":{"due_from":1767225600}}"#).await.json();
    assert!(answer["detail"].as_str().unwrap().contains("send 1767225600000"), "{answer}");
    assert_eq!(bed.get("/v1/messages/waits").await.json()["state"], "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_filter_has_its_path() {
    let bed = Bed::new().await;
    for (filter, code, path) in [
        (json!({"topic": ""}), "bad_topic", "filter.topic"),
        (json!({"topic": "."}), "bad_topic", "filter.topic"),
        (json!({"sink": "a/b"}), "bad_sink", "filter.sink"),
        (json!({"due_from": "x"}), "bad_time", "filter.due_from"),
        (json!({"due_to": "x"}), "bad_time", "filter.due_to"),
        (json!({"colour": "x"}), "bad_field", "filter.colour"),
    ] {
        let answer = bed.post("/v1/messages/cancel", json!({"filter": filter}).to_string()).await;
        assert_eq!((answer.code().as_str(), &answer.json()["path"]), (code, &json!(path)), "{filter}");
    }
    for (query, path) in [("topic=", "topic"), ("sink=a%2Fb", "sink")] {
        assert_eq!(bed.get(&format!("/v1/messages?{query}")).await.json()["path"], path, "{query}");
    }
}

/// In the query of a URL a plus sign stands for a space.
#[tokio::test(flavor = "multi_thread")]
async fn an_offset_with_a_bare_plus_sign_is_read_in_a_query() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "q", "id": "early", "deliver_at": "2036-11-15T17:14:59Z"})).await;
    bed.send(json!({"topic": "q", "id": "late", "deliver_at": "2036-11-15T17:15:00Z"})).await;
    for at in ["2036-11-15T18:15:00+01:00", "2036-11-15T18:15:00%2B01:00", "2036-11-15+18:15:00+01:00"] {
        let list = bed.get(&format!("/v1/messages?due_from={at}")).await.json();
        let ids: Vec<_> = list["messages"].as_array().unwrap().iter().map(|message| &message["id"]).collect();
        assert_eq!(ids, ["late"], "{at}");
        let forecast = bed.get(&format!("/v1/forecast?buckets=1&from={at}")).await.json();
        assert_eq!(forecast["buckets"][0]["from"], "2036-11-15T17:15:00.000Z", "{at}");
    }
    // Elsewhere a space is no offset, and a time without one is not a time.
    for bad in ["2036-11-15T18:15:00+", "2036-11-15+18:15", "2036-11-15T18:15:00+01:0"] {
        assert_eq!(bed.get(&format!("/v1/messages?due_from={bad}")).await.code(), "bad_time", "{bad}");
    }
    let spaced = json!({"filter": {"due_from": "2036-11-15T18:15:00 01:00"}}).to_string();
    assert_eq!(bed.post("/v1/messages/cancel", spaced).await.code(), "bad_time");
}

/// Words of the parser and of Rust, which nobody who calls has heard of.
const JARGON: [&str; 18] = [
    "u8",
    "u16",
    "u32",
    "u64",
    "i64",
    "f64",
    "usize",
    "struct",
    "enum",
    "variant",
    "variants",
    "tuple",
    "newtype",
    "map",
    "sequence",
    "boolean",
    "deserialize",
    "serde",
];

/// The names of all fields of a schema of the OpenAPI file.
fn fields(api: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        fields(api, &api["components"]["schemas"][name], found);
    }
    found.extend(schema["properties"].as_object().into_iter().flat_map(|all| all.keys().cloned()));
    for key in ["allOf", "anyOf", "oneOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|part| fields(api, part, found));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_speaks_the_language_of_the_parser() {
    let bed = Bed::new().await;
    let api = bed.get("/openapi.json").await.json();
    let mut refused = 0;
    let mut check = |answer: &HttpResponse, what: &str| {
        if answer.status.is_success() {
            return;
        }
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        let words: Vec<_> = detail.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let jargon = JARGON.iter().find(|jargon| words.contains(jargon));
        assert_eq!(jargon, None, "{what}: {detail}");
        let phrase =
            ["invalid type", "invalid value", "unit value"].into_iter().find(|one| detail.contains(one));
        assert_eq!(phrase, None, "{what}: {detail}");
        refused += 1;
    };
    for (path, operation) in
        api["paths"].as_object().unwrap().iter().map(|(path, item)| (path, &item["post"]))
    {
        let mut known = BTreeSet::new();
        fields(&api, &operation["requestBody"]["content"]["application/json"]["schema"], &mut known);
        let path = path.replace("{topic}", "q").replace("{id}", "a").replace("{name}", "hook");
        let needed =
            [("topic", json!("q")), ("receipts", json!([])), ("topics", json!(["q"])), ("ids", json!([]))];
        let needed = needed.into_iter().filter(|(field, _)| known.contains(*field));
        let good: serde_json::Map<_, _> = needed.map(|(field, value)| (field.to_owned(), value)).collect();
        for field in &known {
            for value in [json!(-1), json!(1.5), json!(1e300), json!("?"), json!(true), json!([]), json!({})]
            {
                let mut body = Value::Object(good.clone());
                // The parts of a field that has some are filled, too.
                body[field] = match field.as_str() {
                    "retry" => json!({"attempts": value, "min": value, "backoff": value}),
                    "filter" => json!({"due_from": value, "topic": value}),
                    "properties" => json!({"a": value}),
                    _ => value.clone(),
                };
                check(&bed.post(&path, body.to_string()).await, &format!("{path} {body}"));
                body[field] = value;
                check(&bed.post(&path, body.to_string()).await, &format!("{path} {body}"));
            }
        }
    }
    for query in ["limit=-1", "limit=x", "limit=", "limit=99999999999999999999", "buckets=1.5", "colour=red"]
    {
        for path in ["/v1/messages", "/v1/dead", "/v1/queues", "/v1/forecast"] {
            check(&bed.get(&format!("{path}?{query}")).await, &format!("{path}?{query}"));
        }
    }
    assert!(refused > 300, "only {refused} calls were refused");
}
