//! What `doctor` is told.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::stream::Config;
use duly::{ManualClock, SystemClock};
use futures_util::StreamExt;
use serde_json::json;
use testkit::servers::nats::{Nats, installed};

use crate::{configured, stream};

#[tokio::test]
async fn a_duplicate_window_that_is_shorter_than_the_retries_is_named() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    stream(&nats.url(), Config { duplicate_window: Duration::from_secs(180), ..Config::default() }).await;
    let inspect = async |again| {
        let clock = Arc::new(SystemClock::new().unwrap());
        configured(&nats.url(), "").inspect(clock, Duration::from_secs(again), &[]).await
    };
    assert_eq!(inspect(170).await, []);
    let remarks = inspect(300).await;
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].detail.contains("ORDERS") && remarks[0].detail.contains("180s"), "{remarks:?}");
    assert!(remarks[0].remedy.contains("--dupe-window=300s"), "{remarks:?}");
}

/// Here the test is JetStream: it answers what costs one question, and not what costs one for each topic.
#[tokio::test]
async fn what_was_found_until_time_was_over_is_told() {
    if !installed() {
        return;
    }
    let nats = Nats::with("jetstream: disabled");
    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut questions = client.subscribe("$JS.API.STREAM.*").await.unwrap();
    client.flush().await.unwrap();
    let clock = ManualClock::new();
    let config = configured(&nats.url(), "");
    let inspecting = config.inspect(Arc::new(clock.clone()), Duration::from_secs(170), &["orders"]);
    let answering = async {
        let window = Duration::from_secs(60);
        let config = Config { name: "ORDERS".into(), duplicate_window: window, ..Config::default() };
        let listed = json!({ "streams": [{ "config": config }] });
        while let Some(question) = questions.next().await {
            if question.subject.ends_with("LIST") {
                client.publish(question.reply.unwrap(), listed.to_string().into()).await.unwrap();
            } else {
                clock.advance(Duration::from_secs(60));
            }
        }
    };
    let remarks = tokio::select! {
        remarks = inspecting => remarks,
        () = answering => panic!("the subscription ended"),
    };
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].detail.contains("ORDERS"), "{remarks:?}");
}
