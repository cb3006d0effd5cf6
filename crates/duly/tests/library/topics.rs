//! Sinks that take some topics only.

use std::sync::Arc;

use duly::{ErrorCode, Message, SinkOptions, State, TopicPatterns, seconds};
use duly_core::{Store, store::Insert};

use crate::bench::{Bench, Mood, Target};

async fn bench() -> (Bench, Arc<Target>) {
    let topics = TopicPatterns::new(["orders*", "mail"]).unwrap();
    Bench::with_target(Mood::Good, SinkOptions { topics, ..SinkOptions::default() }).await
}

#[tokio::test]
async fn a_topic_that_the_sink_does_not_take_is_refused_before_anything_is_stored() {
    let (bench, target) = bench().await;
    let error = bench.duly.send(Message::to("orders/secret")).await.unwrap_err();
    assert_eq!(error.code(), "topic_not_allowed");
    let batch = [
        Message::to("orders/mail").id("a"),
        Message::to("orders/mails"),
        Message::to("orders/orders.paid").id("b"),
    ];
    let answers = bench.duly.send_batch(batch).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_err(duly::Error::code).err()).collect();
    assert_eq!(codes, [None, Some(ErrorCode::TopicNotAllowed), None]);
    assert_eq!(bench.duly.prepare(Message::to("orders/x")).unwrap_err().code(), "topic_not_allowed");
    bench.duly.send(Message::to("secret")).await.expect("the queue is no sink");
    bench.pass(seconds(1)).await;
    let mut ids = target.ids();
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(bench.duly.totals().await.unwrap().accepted, 3);
}

#[tokio::test]
async fn what_is_stored_for_another_topic_becomes_a_dead_letter_also_when_it_is_replayed() {
    let (bench, target) = bench().await;
    // As one that was accepted under other settings, or moved here from another store.
    let now = bench.duly.clock().now();
    let message = |id: &str, topic: &str| {
        let (id, sink) = (id.parse().unwrap(), "orders".parse().unwrap());
        Insert::new(duly::StoredMessage::new(id, sink, topic.parse().unwrap(), now.wall()))
    };
    bench
        .store
        .insert(now, vec![message("a", "mail"), message("b", "secret"), message("c", "mail")])
        .await
        .unwrap();
    bench.pass(seconds(30)).await;
    assert_eq!(target.ids(), ["a", "c"]);
    let record = bench.duly.get("b").await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts), (State::Dead, 1));
    bench.duly.replay(["b"]).await.unwrap();
    bench.pass(seconds(30)).await;
    assert_eq!(bench.duly.get("b").await.unwrap().unwrap().state, State::Dead);
    assert_eq!(target.ids(), ["a", "c"]);
}
