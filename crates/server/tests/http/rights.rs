//! Who may do what: every route × every role × the caller's topics and those of others, from one table.

use std::collections::BTreeSet;

use duly_server::auth::Role;
use serde_json::{Value, json};

use crate::{access::Tenants, bed::Bed};

/// What of a route depends on the topics of the caller.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    /// Nothing: the answer is the same for everybody with the role.
    Nothing,
    /// Messages are in the body, each answered in its place.
    Items,
    /// Receipts of messages are in the body, each answered in its place.
    Receipts,
    /// It is about all topics together: no token for some topics may.
    Whole,
    /// The topic is in the path.
    Path,
    /// The topic is in the body: this one, with TOPIC in the place of the topic.
    Body(&'static str),
    /// The id of a message is in the path.
    Id,
    /// Ids or a filter are in the body.
    Many,
    /// The topic is in the query, and must be.
    Query,
    /// The answer leaves out what is not of the caller's topics.
    Shown,
}

use Reach::{Body, Id, Items, Many, Nothing, Path, Query, Receipts, Shown, Whole};

/// Stands for every file of the console: the page asks for a token after it is loaded.
const CONSOLE: &str = "/{console}";

/// Every route, the role it needs (`None`: no token at all), and how far it reaches.
const TABLE: &[(&str, &str, Option<Role>, Reach)] = &[
    ("POST", "/v1/messages", Some(Role::Produce), Body(r#"{"topic":"TOPIC","delay":"1h"}"#)),
    ("GET", "/v1/messages", Some(Role::Read), Query),
    ("GET", "/v1/messages/{id}", Some(Role::Read), Id),
    ("PATCH", "/v1/messages/{id}", Some(Role::Produce), Id),
    ("DELETE", "/v1/messages/{id}", Some(Role::Produce), Id),
    ("POST", "/v1/messages/{id}/fire", Some(Role::Produce), Id),
    ("POST", "/v1/messages/batch", Some(Role::Produce), Items),
    ("POST", "/v1/messages/cancel", Some(Role::Operate), Many),
    ("POST", "/v1/messages/reschedule", Some(Role::Operate), Many),
    ("POST", "/v1/messages/fire", Some(Role::Operate), Many),
    ("GET", "/v1/queues", Some(Role::Read), Shown),
    ("POST", "/v1/queues/{topic}/receive", Some(Role::Consume), Path),
    ("POST", "/v1/queues/{topic}/ack", Some(Role::Consume), Path),
    ("POST", "/v1/queues/{topic}/nack", Some(Role::Consume), Path),
    ("POST", "/v1/queues/{topic}/extend", Some(Role::Consume), Path),
    ("POST", "/v1/receive", Some(Role::Consume), Body(r#"{"topics":["TOPIC"]}"#)),
    ("POST", "/v1/ack", Some(Role::Consume), Receipts),
    ("POST", "/v1/nack", Some(Role::Consume), Receipts),
    ("POST", "/v1/extend", Some(Role::Consume), Receipts),
    ("POST", "/v1/queues/{topic}/pause", Some(Role::Operate), Path),
    ("POST", "/v1/queues/{topic}/resume", Some(Role::Operate), Path),
    ("GET", "/v1/sinks", Some(Role::Read), Whole),
    ("POST", "/v1/sinks/{name}/pause", Some(Role::Operate), Whole),
    ("POST", "/v1/sinks/{name}/resume", Some(Role::Operate), Whole),
    ("POST", "/v1/sinks/{name}/probe", Some(Role::Operate), Whole),
    ("GET", "/v1/dead", Some(Role::Read), Query),
    ("POST", "/v1/dead/replay", Some(Role::Operate), Many),
    ("POST", "/v1/dead/purge", Some(Role::Operate), Many),
    ("GET", "/v1/stats", Some(Role::Read), Shown),
    ("GET", "/v1/forecast", Some(Role::Read), Shown),
    ("GET", "/v1/nodes", Some(Role::Read), Shown),
    ("GET", "/v1/levels", Some(Role::Read), Nothing),
    ("GET", "/v1/whoami", None, Nothing),
    ("GET", "/v1/events", Some(Role::Read), Query),
    ("GET", "/livez", None, Nothing),
    ("GET", "/readyz", None, Nothing),
    ("GET", "/metrics", Some(Role::Read), Whole),
    ("GET", "/openapi.json", None, Nothing),
    ("GET", "/errors", None, Nothing),
    ("GET", "/", None, Nothing),
    ("GET", CONSOLE, None, Nothing),
];

impl Tenants {
    /// The code of what was refused for want of a right; `None`: it was not.
    async fn refusal(&self, token: &str, method: &str, path: &str, body: &str) -> Option<String> {
        if path.starts_with("/v1/events") {
            // It has no end if it is allowed.
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
            let answer = self.0.raw(request.as_bytes(), "\r\n\r\n").await;
            return match answer.get(..12) {
                Some("HTTP/1.1 200") => None,
                Some("HTTP/1.1 401") => Some("unauthorized".to_owned()),
                Some("HTTP/1.1 403") => Some("forbidden".to_owned()),
                _ => panic!("{path}: {answer}"),
            };
        }
        let answer = self.call(token, method, path, body).await;
        matches!(answer.status.as_u16(), 401 | 403).then(|| answer.code())
    }
}

/// A selection of messages, with all else that the route needs.
fn many(path: &str, mut selection: Value) -> String {
    if path.ends_with("reschedule") {
        selection["delay"] = json!("1h");
    }
    selection.to_string()
}

/// A call that does no harm, with the topic or id in its place.
fn filled(path: &str, reach: Reach, topic: &str) -> (String, String) {
    let path = path
        .replace("{topic}", topic)
        .replace("{id}", &format!("{topic}-waits"))
        .replace("{name}", "any")
        .replace(CONSOLE, "/js/main.js");
    match reach {
        Body(body) => (path, body.replace("TOPIC", topic)),
        Query => (format!("{path}?topic={topic}"), String::new()),
        Many => {
            let body = many(&path, json!({"filter": {"topic": topic}, "dry_run": true}));
            (path, body)
        }
        Items => (path, json!({"topic": topic, "delay": "1h"}).to_string()),
        Path if path.ends_with("ack") || path.ends_with("extend") => {
            (path, json!({"receipts": []}).to_string())
        }
        Receipts => (path, json!({"receipts": []}).to_string()),
        _ => (path, String::new()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_stands_in_the_table_of_rights() {
    let bed = Bed::new().await;
    let api = bed.get("/openapi.json").await.json();
    let operations = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().map(|method| method.to_uppercase());
        methods.map(|method| format!("{method} {path}")).collect::<Vec<_>>()
    };
    let mut served: BTreeSet<_> = api["paths"].as_object().unwrap().iter().flat_map(operations).collect();
    let files: BTreeSet<_> = duly_server::http::console_paths().collect();
    assert!(files.contains("/js/main.js") && !files.contains("/"), "{files:?}");
    for path in duly_server::http::page_paths() {
        let path = if files.contains(&path) { CONSOLE } else { &path };
        served.insert(format!("GET {path}"));
    }
    let table: BTreeSet<_> = TABLE.iter().map(|(method, path, ..)| format!("{method} {path}")).collect();
    assert_eq!(served, table, "a route without a row has nobody who looks at its rights");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_open_to_its_role_and_to_no_other() {
    let (tenants, mut wrong) = (Tenants::new().await, Vec::new());
    for (method, path, needed, reach) in TABLE {
        // A message of its own for each call that may end it.
        let (path, body) = filled(path, *reach, "none");
        for role in Role::ALL {
            let refused = tenants.refusal(&format!("all-{role}"), method, &path, &body).await;
            let may = needed.is_none_or(|needed| needed == role || role == Role::Admin);
            let want = (!may).then(|| "forbidden".to_owned());
            if refused != want {
                wrong.push(format!("{role} calls {method} {path}: {refused:?}"));
            }
        }
        let nobody = tenants.refusal("nobody", method, &path, &body).await;
        assert_eq!(nobody.as_deref(), needed.map(|_| "unauthorized"), "{method} {path} without a token");
    }
    assert_eq!(wrong, [""; 0]);
}

/// A receipt of another topic is lost to the token, and whoever holds it settles it afterwards.
async fn settles_its_own(tenants: &Tenants, token: &str, path: &str) {
    let root = "all-admin";
    for (topic, want) in [("theirs-now", "lost"), ("own-now", "done")] {
        let message = json!({"topic": topic}).to_string();
        assert_eq!(tenants.call(root, "POST", "/v1/messages", &message).await.status, 201);
        let wish = json!({"topics": [topic], "max": 1, "wait": "10s"}).to_string();
        let received = tenants.call(root, "POST", "/v1/receive", &wish).await.json();
        let receipts = json!({"receipts": [received["messages"][0]["receipt"]]}).to_string();
        let outcome = async |token: &str, path: &str| {
            tenants.call(token, "POST", path, &receipts).await.json()["results"][0]["outcome"].clone()
        };
        assert_eq!(outcome(token, path).await, want, "{token} calls {path} for {topic}");
        if want == "lost" {
            assert_eq!(outcome(root, "/v1/ack").await, "done", "{token} changed {topic} by {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_reaches_the_topics_of_the_token_and_no_other() {
    let tenants = Tenants::new().await;
    for (method, path, needed, reach) in TABLE {
        let Some(role) = needed else { continue };
        for token in [format!("own-{role}"), "own-admin".to_owned()] {
            let what = format!("{token} calls {method} {path}");
            let refused = async |topic: &str| {
                let (path, body) = filled(path, *reach, topic);
                tenants.refusal(&token, method, &path, &body).await
            };
            let theirs = match reach {
                Nothing => continue,
                Items => {
                    let lines = ["theirs", "own-2"].map(|topic| filled(path, *reach, topic).1).join("\n");
                    let results = tenants.call(&token, method, path, &lines).await.lines();
                    assert_eq!(results[0]["error"]["code"], "forbidden", "{what}: {results:?}");
                    assert_eq!(results[1]["state"], "pending", "{what}: {results:?}");
                    continue;
                }
                Receipts => {
                    settles_its_own(&tenants, &token, path).await;
                    continue;
                }
                Shown => {
                    let answer = tenants.call(&token, method, path, "").await;
                    assert_eq!(answer.status, 200, "{what}");
                    assert!(!String::from_utf8_lossy(&answer.body).contains("theirs"), "{what}: {answer:?}");
                    continue;
                }
                Id => {
                    let answer = async |id: &str| {
                        let path = path.replace("{id}", id);
                        let body = if *method == "PATCH" { r#"{"delay":"2h"}"# } else { "" };
                        let answer = tenants.call(&token, method, &path, body).await;
                        (answer.status, String::from_utf8_lossy(&answer.body).replace(id, "ID"))
                    };
                    let (theirs, nobodys) = (answer("theirs-waits").await, answer("nobodys").await);
                    assert_eq!(theirs, nobodys, "{what}: somebody else's message is told from none");
                    assert_eq!(theirs.0, 404, "{what}");
                    let own = format!("{token}-{method}{}", path.ends_with("/fire")).to_lowercase();
                    let message = json!({"topic": "own", "id": own, "delay": "1h"}).to_string();
                    let sent = tenants.call("all-admin", "POST", "/v1/messages", &message).await;
                    assert_eq!(sent.status, 201, "{what}: {sent:?}");
                    let (status, body) = answer(&own).await;
                    assert_eq!(status, 200, "{what}: its own, {body}");
                    assert!(body.contains(r#""id":"ID""#), "{what}: its own, {body}");
                    continue;
                }
                Whole | Path | Body(_) | Many | Query => refused("theirs").await,
            };
            assert_eq!(theirs.as_deref(), Some("forbidden"), "{what}: theirs");
            let own = refused("own-2").await;
            assert_eq!(own.is_some(), *reach == Whole, "{what}: its own, {own:?}");
            if *reach == Many {
                let ids = many(path, json!({"ids": ["theirs-waits", "nobodys"], "dry_run": true}));
                let answer = tenants.call(&token, method, path, &ids).await.json();
                assert_eq!(
                    (&answer["matched"], &answer["unknown"]),
                    (&json!(0), &json!(2)),
                    "{what}: {answer}"
                );
                let all = many(path, json!({"filter": {}, "dry_run": true}));
                let answer = tenants.call(&token, method, path, &all).await;
                assert_eq!(answer.code(), "forbidden", "{what}: everything");
            }
        }
    }
}
