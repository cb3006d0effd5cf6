//! What is written in the configuration is what the running server does.

use std::fs;

use duly_server::config::{Config, Flags, Sources};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    bed::{Bed, SOON},
    target::Target,
};

/// A server with these lines in its file.
async fn configured(lines: &str) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duly.toml");
    fs::write(&file, lines).unwrap();
    let sources = Sources { file: Some(file), environment: Vec::new(), flags: Flags::default() };
    let written = Config::load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    Bed::with(|config| *config = Config { listen: config.listen, store: config.store.clone(), ..written })
        .await
}

/// The message, once its first attempt is recorded.
async fn tried(bed: &Bed, id: &str) -> Value {
    let known = async {
        loop {
            let known = bed.get(&format!("/v1/messages/{id}")).await.json();
            if known["attempts"].as_array().is_some_and(|attempts| !attempts.is_empty()) {
                return known;
            }
        }
    };
    tokio::time::timeout(SOON, known).await.expect("an attempt in time")
}

/// How long it waits after its first attempt, in minutes. With jitter a wait is longer, by a quarter at most.
fn wait(known: &Value) -> u64 {
    (known["retry_at_ms"].as_u64().unwrap() - known["attempts"][0]["at_ms"].as_u64().unwrap()) / 60_000
}

#[tokio::test(flavor = "multi_thread")]
async fn nacks_wait_and_end_as_handlers_says() {
    let bed = configured(
        "[handlers]\nagain = \"1h\"\nfailed = \"10h\"\nmax = \"20h\"\nbackoff = \"fixed\"\nattempts = 2\n",
    )
    .await;
    let nack = async |id: &str, mut with: Value| {
        bed.send(json!({"topic": "q", "id": id})).await;
        with["receipts"] = json!([bed.receive("q", 1).await[0]["receipt"]]);
        let answer = bed.post("/v1/queues/q/nack", with.to_string()).await;
        assert_eq!(answer.json()["results"][0]["outcome"], "done", "{answer:?}");
        bed.get(&format!("/v1/messages/{id}")).await.json()
    };
    let again = wait(&nack("again", json!({})).await);
    assert!((59..=75).contains(&again), "handlers.again: {again} minutes");
    let failed = wait(&nack("failed", json!({"error": "no"})).await);
    assert!((599..=750).contains(&failed), "handlers.failed: {failed} minutes");
    let first = nack("often", json!({"delay": 0})).await;
    assert_eq!(first["state"], "pending");
    let receipt = bed.receive("q", 1).await[0]["receipt"].clone();
    bed.post("/v1/queues/q/nack", json!({"receipts": [receipt]}).to_string()).await;
    let known = bed.get("/v1/messages/often").await.json();
    assert_eq!((&known["state"], &known["reason"]), (&json!("dead"), &json!("exhausted")), "{known}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_without_a_policy_of_its_own_retries_as_retry_says() {
    let target = Target::new().await;
    target.answer(StatusCode::INTERNAL_SERVER_ERROR);
    let lines = format!(
        "[retry]\nattempts = 1\nbackoff = \"fixed\"\nmin = \"10h\"\nmax = \"10h\"\n\
         [sinks.hook]\nkind = \"webhook\"\nurl = {:?}\nallow_private = true\n",
        target.url()
    );
    let bed = configured(&lines).await;
    bed.send(json!({"sink": "hook", "topic": "t", "id": "once"})).await;
    let known = tried(&bed, "once").await;
    assert_eq!((&known["state"], &known["reason"]), (&json!("dead"), &json!("exhausted")), "{known}");
    bed.send(json!({"sink": "hook", "topic": "t", "id": "twice", "retry": {"attempts": 2}})).await;
    let waits = wait(&tried(&bed, "twice").await);
    assert!((599..=600).contains(&waits), "retry.min: {waits} minutes");
}
