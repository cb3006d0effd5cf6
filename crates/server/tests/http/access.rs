//! What a token for some topics sees and can do; the table of all routes is in `rights.rs`.

use duly_server::{
    auth::{Role, Token, Tokens},
    config::Config,
};
use http::Method;
use serde_json::json;

use crate::bed::{Bed, HttpResponse};

/// One token per role for all topics, and one per role for the topics of one tenant. A token is its name.
pub(crate) fn tenants(config: &mut Config) {
    let tokens = Role::ALL.into_iter().flat_map(|role| {
        let (all, own) = (format!("all-{role}"), format!("own-{role}"));
        [Token::new(&all, &all, &[role], &[]), Token::new(&own, &own, &[role], &["own*"])]
    });
    config.tokens = Tokens::new(tokens.collect());
}

/// A server with the tokens of `tenants`.
pub(crate) struct Tenants(pub(crate) Bed);

impl Tenants {
    pub(crate) async fn new() -> Self {
        let tenants = Self(Bed::with(tenants).await);
        for topic in ["own", "theirs"] {
            let message = json!({"topic": topic, "id": format!("{topic}-waits"), "delay": "1h"});
            let sent = tenants.call("all-admin", "POST", "/v1/messages", &message.to_string()).await;
            assert_eq!(sent.status, 201, "{sent:?}");
        }
        tenants
    }

    pub(crate) async fn call(&self, token: &str, method: &str, path: &str, body: &str) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        let method: Method = method.parse().unwrap();
        self.0.call_with(method, path, body.to_owned(), &[("authorization", &bearer)]).await
    }
}

/// What a tenant would learn from the answer, and keep from the other by being first.
#[tokio::test(flavor = "multi_thread")]
async fn ids_of_others_can_be_neither_probed_nor_squatted() {
    let tenants = Tenants::new().await;
    let answer = async |id: &str, topic: &str, batch: bool| {
        let message = json!({"topic": topic, "id": id, "body": "x", "delay": "1h"}).to_string();
        let path = if batch { "/v1/messages/batch" } else { "/v1/messages" };
        let answer = tenants.call("own-produce", "POST", path, &message).await;
        (answer.status.as_u16(), String::from_utf8_lossy(&answer.body).replace(id, "ID"))
    };
    for batch in [false, true] {
        let (taken, free) =
            (answer("theirs-waits", "own", batch).await, answer("theirs-later", "own", batch).await);
        assert_eq!(taken, free, "an id that is taken is told from one that is free");
        assert!(taken.1.contains("id_not_allowed"), "{taken:?}");
        let own = answer(if batch { "own-2" } else { "own-1" }, "own", batch).await;
        assert!([200, 201].contains(&own.0) && !own.1.contains("error"), "{own:?}");
    }
    // What the tenant tried is still free for whom it belongs to.
    let theirs = json!({"topic": "theirs", "id": "theirs-later"}).to_string();
    assert_eq!(tenants.call("all-produce", "POST", "/v1/messages", &theirs).await.status, 201);
    // Without an id it is made, and anybody may look for anything.
    let made = tenants.call("own-produce", "POST", "/v1/messages", r#"{"topic":"own","delay":"1h"}"#).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(tenants.call("own-read", "GET", &format!("/v1/messages/{id}"), "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_and_forecast_of_a_token_are_of_its_topics() {
    let tenants = Tenants::new().await;
    for place in 0..3 {
        let message = json!({"topic": "theirs", "id": format!("theirs-{place}"), "delay": "10m"});
        tenants.call("all-admin", "POST", "/v1/messages", &message.to_string()).await;
    }
    let stats = tenants.call("own-read", "GET", "/v1/stats", "").await.json();
    assert_eq!(
        (&stats["totals"]["pending"], &stats["totals"]["accepted"]),
        (&json!(1), &json!(1)),
        "{stats}"
    );
    assert_eq!((&stats["limited"], &stats["totals"]["balanced"]), (&json!(true), &json!(true)));
    let all = tenants.call("all-read", "GET", "/v1/stats", "").await.json();
    assert_eq!((&all["totals"]["pending"], all.get("limited")), (&json!(5), None));
    let sum = async |token: &str| {
        let path = "/v1/forecast?from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&buckets=7";
        let forecast = tenants.call(token, "GET", path, "").await.json();
        forecast["buckets"].as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("own-read").await, sum("all-read").await), (1, 5));
    let nodes = tenants.call("own-read", "GET", "/v1/nodes", "").await.json();
    assert_eq!(nodes["shards"][0].get("lag_ms"), None, "{nodes}");
    let queues = tenants.call("own-read", "GET", "/v1/queues", "").await.json();
    assert_eq!(queues["queues"].as_array().unwrap().len(), 1);
}

/// There are no counters per topic: each costs the store a search, which everybody waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_of_very_many_topics_says_that_it_is_not_whole() {
    let tenants = Tenants::new().await;
    let lines: Vec<_> =
        (0..120).map(|place| json!({"topic": format!("own-{place}"), "delay": "10m"}).to_string()).collect();
    tenants.call("own-produce", "POST", "/v1/messages/batch", &lines.join("\n")).await;
    for (token, partial, want) in [("own-read", true, 100), ("all-read", false, 120)] {
        let path = "/v1/forecast?from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&buckets=1";
        let forecast = tenants.call(token, "GET", path, "").await.json();
        assert_eq!(forecast["partial"].as_bool().unwrap_or_default(), partial, "{token}");
        assert!(forecast["buckets"][0]["count"].as_u64().unwrap() >= want, "{forecast}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_hears_of_its_own_topics_without_naming_one() {
    let tenants = Tenants::new().await;
    let follow = b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer own-read\r\n\r\n";
    let acts = async {
        // Again and again: nobody says when the follower has begun.
        for place in 0.. {
            let own = if place % 5 == 4 { "own-end" } else { "own" };
            for id in [format!("theirs-{place}"), format!("{own}-{place}")] {
                let topic = id.split('-').next().unwrap();
                let message = json!({"topic": topic, "id": id, "delay": "1h"}).to_string();
                assert_eq!(tenants.call("all-admin", "POST", "/v1/messages", &message).await.status, 201);
                let path = format!("/v1/messages/{id}");
                assert_eq!(tenants.call("all-admin", "DELETE", &path, "").await.status, 200);
            }
        }
    };
    let received = tokio::select! {
        received = tenants.0.raw(follow, "own-end") => received,
        () = acts => unreachable!(),
    };
    assert!(!received.contains("theirs") && received.contains("cancelled"), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_come_in_pages() {
    let bed = Bed::new().await;
    for topic in ["a", "b", "c/d", "题"] {
        bed.send(json!({"topic": topic, "delay": "1h"})).await;
    }
    let (mut path, mut topics) = ("/v1/queues?limit=3".to_owned(), Vec::new());
    loop {
        let page = bed.get(&path).await.json();
        topics.extend(
            page["queues"].as_array().unwrap().iter().map(|one| one["topic"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["cursor"].as_str() else { break };
        assert_eq!(cursor, "c/d");
        path = "/v1/queues?limit=3&cursor=c%2Fd".into();
    }
    assert_eq!(topics, ["a", "b", "c/d", "题"]);
    assert_eq!(bed.get("/v1/queues?limit=0").await.code(), "too_many");
}

/// Or else a caller who counted first would learn of it only when some messages are changed already.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_change_refuses_what_the_change_refuses() {
    let tenants = Tenants::new().await;
    let too_many: Vec<_> = (0..=10_000).map(|number| format!("own-{number}")).collect();
    let wrong = [
        json!({}),
        json!({"ids": ["own-waits"], "filter": {}}),
        json!({"ids": too_many}),
        json!({"ids": ["own-waits", "no id"]}),
        json!({"ids": ["own-waits"], "matched": 1}),
        json!({"filter": {}}),
        json!({"filter": {"topic": "theirs"}}),
        json!({"filter": {"topic": "own", "due_from": "yesterday"}}),
        json!({"filter": {"topic": "own"}, "as_of": "then"}),
        json!({"filter": {"topic": "own"}, "matched": -1}),
    ];
    for path in ["messages/cancel", "messages/reschedule", "messages/fire", "dead/replay", "dead/purge"] {
        for which in &wrong {
            let mut change = which.clone();
            if path.ends_with("reschedule") {
                change["delay"] = json!("2h");
            }
            let mut dry_run = change.clone();
            dry_run["dry_run"] = json!(true);
            let refused = async |change: serde_json::Value| {
                let path = format!("/v1/{path}");
                let answer = tenants.call("own-admin", "POST", &path, &change.to_string()).await;
                (answer.status.as_u16(), answer.code(), answer.json()["path"].clone())
            };
            let (real, dry) = (refused(change).await, refused(dry_run).await);
            assert!(real.0 >= 400 && dry == real, "{path} {which}: {dry:?}, not {real:?}");
        }
    }
    let stats = tenants.call("all-read", "GET", "/v1/stats", "").await.json();
    assert_eq!(stats["totals"]["pending"], 2, "nothing was changed: {stats}");
}

/// Two tokens for some topics, one for all; six topics: a third for each, 2.
async fn sharers() -> Tenants {
    Tenants(
        Bed::with(|config| {
            config.http.topics = 6;
            config.tokens = Tokens::new(vec![
                Token::new("mine", "mine", &[Role::Produce, Role::Operate, Role::Consume], &["mine*"]),
                Token::new("yours", "yours", &[Role::Produce], &["yours*"]),
                Token::new("root", "root", &[Role::Admin], &[]),
            ]);
        })
        .await,
    )
}

impl Tenants {
    /// Sends to a topic; the code, if it is refused.
    pub(crate) async fn sends(&self, token: &str, topic: &str) -> String {
        let message = json!({"topic": topic, "delay": "1h"}).to_string();
        let answer = self.call(token, "POST", "/v1/messages", &message).await;
        if answer.status == 201 { String::new() } else { answer.code() }
    }
}

/// Without shares, the first to fill the topics would keep everybody else from having one.
#[tokio::test(flavor = "multi_thread")]
async fn one_token_does_not_take_the_topics_of_all() {
    let names = ["root", "mine", "yours"];
    for first in 0..3 {
        let tenants = sharers().await;
        for name in names.iter().cycle().skip(first).take(3) {
            for place in 0..2 {
                let sent = tenants.sends(name, &format!("{name}-{place}")).await;
                assert_eq!(sent, "", "{name}, {} first", names[first]);
            }
            assert_eq!(tenants.sends(name, &format!("{name}-2")).await, "too_many_topics", "{name}");
            assert_eq!(tenants.sends(name, &format!("{name}-1")).await, "", "one that there is");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_would_make_a_topic_is_counted_until_it_is_empty() {
    let tenants = sharers().await;
    for place in 0..2 {
        assert_eq!(tenants.sends("mine", &format!("mine-{place}")).await, "");
    }
    let line = json!({"topic": "mine-2"}).to_string();
    let batch = tenants.call("mine", "POST", "/v1/messages/batch", &line).await.lines();
    assert_eq!(batch[0]["error"]["code"], "too_many_topics");
    let paused = tenants.call("mine", "POST", "/v1/queues/mine-3/pause", "").await;
    assert_eq!(paused.code(), "too_many_topics", "what is paused is kept");
    // To receive from a topic that is not there keeps nothing.
    assert_eq!(tenants.call("mine", "POST", "/v1/queues/mine-4/receive", "").await.status, 200);
    // A topic without messages is forgotten.
    let cancel = json!({"filter": {"topic": "mine-0"}}).to_string();
    assert_eq!(tenants.call("mine", "POST", "/v1/messages/cancel", &cancel).await.status, 200);
    let again = async { while tenants.sends("mine", "mine-2").await == "too_many_topics" {} };
    tokio::time::timeout(crate::bed::SOON, again).await.unwrap();
}
