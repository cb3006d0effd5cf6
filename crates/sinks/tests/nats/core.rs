//! Core NATS, which is asked for and at most once.

use std::time::Duration;

use futures_util::StreamExt;
use testkit::servers::nats::{Nats, installed};

use crate::{configured, one, sink_with, to};

#[tokio::test]
async fn whoever_listens_gets_it_and_nobody_has_to() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    let sink = sink_with(&nats.url(), "mode = 'core'");
    sink.probe().await.unwrap();
    let receipt = one(&sink, "orders", "unheard").await.unwrap();
    assert!(receipt.contains("at most once"), "{receipt}");

    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut heard = client.subscribe("orders").await.unwrap();
    // Until the server has this one back to us, it may not know that we listen.
    client.publish("orders", "listening".into()).await.unwrap();
    assert_eq!(heard.next().await.unwrap().payload, "listening");
    let batch: Vec<_> = (0..500).map(|n| to("orders", &format!("m{n}"))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok));
    for delivery in &batch {
        let message = heard.next().await.unwrap();
        assert_eq!(message.headers.unwrap().get("duly-id").unwrap().as_str(), delivery.message.id.as_str());
    }
    nats.kill();
    assert!(one(&sink, "orders", "a").await.is_err());
}

#[tokio::test]
async fn doctor_is_told_that_it_is_at_most_once() {
    let clock = std::sync::Arc::new(duly::SystemClock::new().unwrap());
    let config = configured("nats://127.0.0.1", "mode = 'core'");
    let remarks = config.look(clock, Duration::from_secs(1)).await;
    assert!(remarks.len() == 1 && remarks[0].detail.contains("at-most-once"), "{remarks:?}");
}
