//! Every route of the OpenAPI file.

use duly_server::{
    auth::{Role, Token, Tokens},
    config::Config,
};
use http::Method;
use serde_json::{Value, json};

use crate::bed::Bed;

/// Every (method, path, whether it takes a body) of the file that is served.
async fn routes(bed: &Bed) -> Vec<(Method, String, bool)> {
    let api = bed.get("/openapi.json").await.json();
    assert_eq!(api["openapi"], "3.1.0");
    let mut routes = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            routes.push((method, path.clone(), operation.get("requestBody").is_some()));
        }
    }
    assert!(routes.len() >= 29, "{routes:?}");
    routes
}

fn filled(path: &str) -> String {
    path.replace("{id}", "some-id").replace("{topic}", "some-topic").replace("{name}", "some-sink")
}

/// What every route answers to a body that is none of its business.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_takes_nonsense_or_fails_at_it() {
    let bed = Bed::new().await;
    for (method, path, takes_body) in routes(&bed).await {
        if path == "/v1/events" {
            continue; // It has no end; see events.rs.
        }
        let path = filled(&path);
        for body in ["{", "[", "null", "7", "{\"no_such_field\":1}", "\u{1F980}"] {
            let answer = bed.call(method.clone(), &path, body).await;
            let status = answer.status.as_u16();
            assert_ne!(status, 500, "{method} {path} {body}: {answer:?}");
            if takes_body && path != "/v1/messages/batch" {
                let code = answer.code();
                assert!(code == "bad_json" || code == "bad_field", "{method} {path} {body}: {code}");
            }
        }
        let wrong = if method == Method::GET { Method::PUT } else { Method::OPTIONS };
        let answer = bed.call(wrong, &path, "").await;
        assert_eq!(answer.code(), "method_not_allowed", "{path}");
        let query = bed.call(method.clone(), &format!("{path}?a=%zz&&="), "").await;
        assert_ne!(query.status.as_u16(), 500);
    }
    let totals = bed.get("/v1/stats").await.json()["totals"].clone();
    assert_eq!((totals["accepted"].clone(), totals["balanced"].clone()), (json!(0), json!(true)));
}

/// What every route answers when all is well; the list must name every route.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_does_its_work() {
    let target = crate::target::Target::new().await;
    let bed = Bed::with(|config| target.configure(config, "hook")).await;
    for id in ["get", "patch", "delete", "fire", "cancel", "move", "fire-many"] {
        bed.send(json!({"topic": "later", "id": id, "delay": "1h"})).await;
    }
    bed.send(json!({"topic": "now", "id": "a"})).await;
    bed.send(json!({"topic": "now", "id": "b", "retry": {"attempts": 1}})).await;
    bed.send(json!({"topic": "now", "id": "c"})).await;
    bed.send(json!({"topic": "now", "id": "d"})).await;
    let receipts: Vec<Value> =
        bed.receive("now", 4).await.iter().map(|message| message["receipt"].clone()).collect();
    let receipt = |n: usize| json!({"receipts": [receipts[n]]}).to_string();
    let calls = [
        (Method::GET, "/livez", String::new(), 200),
        (Method::GET, "/readyz", String::new(), 200),
        (Method::GET, "/metrics", String::new(), 200),
        (Method::POST, "/v1/messages", r#"{"topic":"x"}"#.into(), 201),
        (Method::GET, "/v1/messages", String::new(), 200),
        (Method::POST, "/v1/messages/batch", r#"{"topic":"x"}"#.into(), 200),
        (Method::GET, "/v1/messages/{id}=get", String::new(), 200),
        (Method::PATCH, "/v1/messages/{id}=patch", r#"{"delay":"2h"}"#.into(), 200),
        (Method::DELETE, "/v1/messages/{id}=delete", String::new(), 200),
        (Method::POST, "/v1/messages/{id}/fire=fire", String::new(), 200),
        (Method::POST, "/v1/messages/cancel", r#"{"ids":["cancel"]}"#.into(), 200),
        (Method::POST, "/v1/messages/reschedule", r#"{"ids":["move"],"delay":"3h"}"#.into(), 200),
        (Method::POST, "/v1/messages/fire", r#"{"ids":["fire-many"]}"#.into(), 200),
        (Method::GET, "/v1/queues", String::new(), 200),
        (Method::POST, "/v1/queues/{topic}/receive=nothing", String::new(), 200),
        (Method::POST, "/v1/queues/{topic}/extend=now", receipt(0), 200),
        (Method::POST, "/v1/queues/{topic}/ack=now", receipt(0), 200),
        (Method::POST, "/v1/queues/{topic}/nack=now", receipt(1), 200),
        (Method::POST, "/v1/receive", r#"{"topics":["nothing"]}"#.into(), 200),
        (Method::POST, "/v1/extend", receipt(2), 200),
        (Method::POST, "/v1/ack", receipt(2), 200),
        (Method::POST, "/v1/nack", receipt(3), 200),
        (Method::POST, "/v1/queues/{topic}/pause=now", String::new(), 204),
        (Method::POST, "/v1/queues/{topic}/resume=now", String::new(), 204),
        (Method::GET, "/v1/sinks", String::new(), 200),
        (Method::POST, "/v1/sinks/{name}/pause=hook", String::new(), 204),
        (Method::POST, "/v1/sinks/{name}/resume=hook", String::new(), 204),
        (Method::POST, "/v1/sinks/{name}/probe=hook", String::new(), 204),
        (Method::GET, "/v1/dead", String::new(), 200),
        (Method::POST, "/v1/dead/replay", r#"{"ids":["b"]}"#.into(), 200),
        (Method::POST, "/v1/dead/purge", r#"{"filter":{}}"#.into(), 200),
        (Method::GET, "/v1/stats", String::new(), 200),
        (Method::GET, "/v1/forecast", String::new(), 200),
        (Method::GET, "/v1/nodes", String::new(), 200),
        (Method::GET, "/v1/levels", String::new(), 200),
        (Method::GET, "/v1/whoami", String::new(), 200),
    ];
    let mut open = routes(&bed).await;
    open.retain(|(_, path, _)| path != "/v1/events");
    for (method, call, body, status) in calls {
        let (route, name) = call.split_once('=').unwrap_or((call, ""));
        let path = route.replace("{id}", name).replace("{topic}", name).replace("{name}", name);
        let answer = bed.call(method.clone(), &path, body).await;
        assert_eq!(answer.status, status, "{method} {call}: {answer:?}");
        if route.starts_with("/v1") && status == 200 && route != "/v1/messages/batch" {
            fits(&bed.get("/openapi.json").await.json(), &method, route, &answer.json());
        }
        open.retain(|(known, path, _)| (known, path.as_str()) != (&method, route));
    }
    assert!(open.is_empty(), "no good call is known for {open:?}");
}

/// Whether an answer has the fields that the file says, and no others.
fn fits(api: &Value, method: &Method, route: &str, answer: &Value) {
    let operation = &api["paths"][route][method.as_str().to_lowercase()];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let name = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
    let schema = &api["components"]["schemas"][name];
    let properties = schema["properties"].as_object().unwrap();
    for field in answer.as_object().unwrap().keys() {
        assert!(properties.contains_key(field), "{route}: {field} is not in the file");
    }
    for field in schema["required"].as_array().into_iter().flatten() {
        assert!(answer.get(field.as_str().unwrap()).is_some(), "{route}: {field} is missing");
    }
}

fn guarded(config: &mut Config) {
    config.tokens = Tokens::new(vec![
        Token::new("reader", "read-me", &[Role::Read], &[]),
        Token::new("shop", "sell-me", &[Role::Produce, Role::Consume], &["order*"]),
        Token::new("root", "rule-me", &[Role::Admin], &[]),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_is_open_without_a_token_once_there_are_tokens() {
    let bed = Bed::with(guarded).await;
    for (method, path, _) in routes(&bed).await {
        let open = matches!(path.as_str(), "/livez" | "/readyz" | "/v1/whoami");
        let path = filled(&path);
        for token in ["", "Bearer wrong", "Basic read-me", "Bearer "] {
            let answer = bed.call_with(method.clone(), &path, "{}", &[("authorization", token)]).await;
            if open {
                assert_eq!(answer.status, 200);
            } else {
                assert_eq!(answer.code(), "unauthorized", "{method} {path} with {token:?}");
            }
        }
        // A reader changes nothing, whatever the route.
        if method != Method::GET {
            let answer =
                bed.call_with(method.clone(), &path, "{}", &[("authorization", "Bearer read-me")]).await;
            assert_eq!(answer.code(), "forbidden", "{method} {path}");
        }
        // A producer of some topics sees and operates nothing else.
        let answer = bed.call_with(method.clone(), &path, "{}", &[("authorization", "Bearer sell-me")]).await;
        // These name their topics in the body.
        let by_body = ["/v1/receive", "/v1/ack", "/v1/nack", "/v1/extend"].contains(&path.as_str());
        let produces = by_body || path.starts_with("/v1/messages") && method != Method::GET;
        if !open && !produces {
            assert_eq!(answer.code(), "forbidden", "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_touches_only_its_topics() {
    let bed = Bed::with(guarded).await;
    let shop = [("authorization", "Bearer sell-me")];
    let root = [("authorization", "Bearer rule-me")];
    let send = |topic: &str, id: &str| json!({"topic": topic, "id": id, "delay": "1h"}).to_string();
    assert_eq!(
        bed.call_with(Method::POST, "/v1/messages", send("order-eu", "order-mine"), &shop).await.status,
        201
    );
    assert_eq!(
        bed.call_with(Method::POST, "/v1/messages", send("mail", "x"), &shop).await.code(),
        "forbidden"
    );
    assert_eq!(bed.call_with(Method::POST, "/v1/messages", send("mail", "theirs"), &root).await.status, 201);
    let lines = format!("{}\n{}\n", send("mail", "y"), send("order", "order-z"));
    let results = bed.call_with(Method::POST, "/v1/messages/batch", lines, &shop).await.lines();
    assert_eq!(
        (results[0]["error"]["code"].clone(), results[1]["id"].clone()),
        (json!("forbidden"), json!("order-z"))
    );
    // What is not theirs does not exist for them: not even its topic is told.
    let theirs = bed.call_with(Method::DELETE, "/v1/messages/theirs", "", &shop).await;
    assert_eq!(theirs.code(), "not_found");
    assert!(!theirs.json().to_string().contains("mail"));
    assert_eq!(bed.call_with(Method::DELETE, "/v1/messages/order-mine", "", &shop).await.status, 200);
    assert_eq!(bed.call_with(Method::POST, "/v1/queues/mail/receive", "", &shop).await.code(), "forbidden");
    assert_eq!(bed.call_with(Method::POST, "/v1/queues/order/receive", "", &shop).await.status, 200);
}

/// A receipt is a number and an id: it can be guessed. Guessing must not help.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_settles_and_changes_nothing_of_topics_that_are_not_its_own() {
    let bed = Bed::with(|config| {
        let all = [Role::Produce, Role::Consume, Role::Read, Role::Operate];
        config.tokens = Tokens::new(vec![
            Token::new("shop", "sell-me", &all, &["order*"]),
            Token::new("root", "rule-me", &[Role::Admin], &[]),
        ]);
    })
    .await;
    let shop = [("authorization", "Bearer sell-me")];
    let root = [("authorization", "Bearer rule-me")];
    let post = async |path: &str, body: serde_json::Value, token| {
        bed.call_with(Method::POST, path, body.to_string(), token).await
    };
    for topic in ["mail", "order"] {
        let sent = post("/v1/messages", json!({"topic": topic, "id": topic}), &root).await;
        assert_eq!(sent.status, 201, "{sent:?}");
    }
    let mut receipts = Vec::new();
    for topic in ["mail", "order"] {
        let received = post(&format!("/v1/queues/{topic}/receive"), json!({"wait": "10s"}), &root).await;
        receipts.push(received.json()["messages"][0]["receipt"].clone());
    }
    for verb in ["extend", "nack", "ack"] {
        let body = json!({"receipts": if verb == "ack" { &receipts[..] } else { &receipts[..1] }});
        let settled = post(&format!("/v1/queues/order/{verb}"), body, &shop).await.json();
        assert_eq!(settled["results"][0]["outcome"], "lost", "{verb}");
        if verb == "ack" {
            assert_eq!(settled["results"][1]["outcome"], "done");
        }
    }
    let ack = post("/v1/queues/mail/ack", json!({"receipts": receipts[..1]}), &root).await;
    assert_eq!(ack.json()["results"][0]["outcome"], "done");
    post("/v1/messages", json!({"topic": "mail", "id": "theirs", "delay": "1h"}), &root).await;
    post("/v1/messages", json!({"topic": "order", "id": "own", "delay": "1h"}), &root).await;
    for dry_run in [true, false] {
        let wish = json!({"ids": ["theirs", "own", "nobodys"], "dry_run": dry_run});
        let answer = post("/v1/messages/cancel", wish, &shop).await.json();
        assert_eq!((answer["matched"].clone(), answer["unknown"].clone()), (json!(1), json!(2)), "{answer}");
    }
    for (method, path) in [
        (Method::GET, "/v1/sinks"),
        (Method::GET, "/metrics"),
        (Method::POST, "/v1/sinks/any/pause"),
        (Method::POST, "/v1/sinks/any/resume"),
        (Method::POST, "/v1/sinks/any/probe"),
        (Method::GET, "/v1/events?sink=any"),
        (Method::GET, "/v1/messages?sink=queue"),
    ] {
        assert_eq!(bed.call_with(method, path, "", &shop).await.code(), "forbidden", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_and_foreign_names_are_kept_out() {
    let bed = Bed::new().await;
    let body = r#"{"topic":"a"}"#;
    for headers in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), ("origin", "null")]
    {
        let answer = bed.call_with(Method::POST, "/v1/messages", body, &[headers]).await;
        assert_eq!(answer.code(), "cross_origin", "{headers:?}");
    }
    let own = format!("http://{}", bed.addr());
    let answer = bed
        .call_with(Method::POST, "/v1/messages", body, &[("origin", &own), ("sec-fetch-site", "same-origin")])
        .await;
    assert_eq!(answer.status, 201);
    // A proxy has changed Host; the browser still says whose page it is.
    let behind = [("origin", "https://intern.example"), ("sec-fetch-site", "same-origin")];
    assert_eq!(bed.call_with(Method::POST, "/v1/messages", body, &behind).await.status, 201);
    let foreign = [("origin", &*own), ("sec-fetch-site", "same-site")];
    assert_eq!(bed.call_with(Method::POST, "/v1/messages", body, &foreign).await.code(), "cross_origin");
    let answer = bed.raw(b"GET /v1/stats HTTP/1.1\r\nhost: rebound.example\r\n\r\n", "bad_host").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_may_ask_who_they_are() {
    let bed = Bed::new().await;
    let anyone = bed.get("/v1/whoami").await.json();
    assert_eq!(
        anyone,
        json!({"known": true, "tokens": false, "name": "anyone", "roles": ["admin"], "topics": []})
    );
    let bed = Bed::with(guarded).await;
    let nobody = json!({"known": false, "tokens": true, "roles": [], "topics": []});
    for (token, want) in [
        ("", &nobody),
        ("Bearer wrong", &nobody),
        (
            "Bearer sell-me",
            &json!({"known": true, "tokens": true, "name": "shop", "roles": ["produce", "consume"], "topics": ["order*"]}),
        ),
    ] {
        let answer = bed.call_with(Method::GET, "/v1/whoami", "", &[("authorization", token)]).await;
        assert_eq!(answer.json(), *want, "{token:?}");
    }
}

/// Its files are checked where they are; here, that they are served, guarded, and kept.
#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_at_the_root() {
    let bed = Bed::with(guarded).await;
    let page = bed.get("/").await;
    assert_eq!(
        (page.status.as_u16(), page.headers["content-type"].to_str().unwrap()),
        (200, "text/html; charset=utf-8")
    );
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let module = bed.get("/js/main.js").await;
    assert_eq!(module.headers["content-type"], "text/javascript; charset=utf-8");
    let tag = module.headers["etag"].to_str().unwrap();
    let again = bed.call_with(Method::GET, "/js/main.js", "", &[("if-none-match", tag)]).await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    assert_eq!(bed.get("/js/none.js").await.code(), "no_such_route");
}
