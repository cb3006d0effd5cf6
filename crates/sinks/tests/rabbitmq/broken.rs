//! A broker of its own that is killed, that hangs, and that blocks its publishers.

use std::{collections::BTreeSet, time::Duration};

use duly_core::{Body, Delivery, SinkErrorKind};
use testkit::servers::{
    rabbitmq::{Rabbitmq, installed},
    wait_until,
};

use crate::{Reader, one, sink_with, to};

/// One test, as the broker takes long to start: three ways to be broken, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_mid_batch_hanging_or_blocked_it_loses_nothing() {
    if !installed() {
        return;
    }
    let rabbitmq = tokio::task::block_in_place(|| Rabbitmq::with("max_message_size = 2000000"));
    let sink = sink_with(&rabbitmq.url(), "");
    let queue = Reader::new(&rabbitmq.url()).await.queue().await;
    killed(&rabbitmq, &queue).await;
    hanging(&rabbitmq, &queue).await;
    too_large(&rabbitmq, &queue).await;
    blocked(&rabbitmq, &queue).await;
    sink.probe().await.unwrap();
}

async fn killed(rabbitmq: &Rabbitmq, queue: &str) {
    let sink = sink_with(&rabbitmq.url(), "");
    one(&sink, queue, "before").await.unwrap();
    let mut left: Vec<Delivery> = (0..5_000).map(|n| to(queue, &format!("m{n}"))).collect();
    let mut rounds = 0;
    while !left.is_empty() {
        let (answers, ()) = tokio::join!(sink.deliver(&left), async {
            if rounds == 0 {
                tokio::task::spawn_blocking(|| {}).await.unwrap();
                rabbitmq.kill();
            }
        });
        if rounds == 0 {
            let error = one(&sink, queue, "away").await.unwrap_err();
            assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
            tokio::task::block_in_place(|| rabbitmq.start());
        }
        rounds += 1;
        let taken: BTreeSet<usize> = (0..left.len()).filter(|n| answers[*n].is_ok()).collect();
        let mut place = 0;
        left.retain_mut(|delivery| {
            delivery.attempt += 1;
            place += 1;
            !taken.contains(&(place - 1))
        });
    }
    let all: BTreeSet<String> = Reader::new(&rabbitmq.url()).await.ids(queue).await.into_iter().collect();
    assert_eq!(all.len(), 5_001, "all are there, persistent, the one before the kill, too");
}

async fn hanging(rabbitmq: &Rabbitmq, queue: &str) {
    let sink = sink_with(&rabbitmq.url(), "request_timeout = '4s'");
    one(&sink, queue, "a").await.unwrap();
    rabbitmq.pause();
    assert_eq!(one(&sink, queue, "b").await.unwrap_err().kind, SinkErrorKind::Unknown, "it was sent");
    assert_eq!(one(&sink, queue, "c").await.unwrap_err().kind, SinkErrorKind::Unreachable, "this was not");
    rabbitmq.cont();
    let patient = sink_with(&rabbitmq.url(), "");
    one(&patient, queue, "b").await.unwrap();
}

async fn too_large(rabbitmq: &Rabbitmq, queue: &str) {
    let sink = sink_with(&rabbitmq.url(), "");
    let mut large = to(queue, "large");
    large.message.body = Body::bytes(vec![0; 3_000_000]);
    let kind = |outcomes: Vec<Result<String, duly_core::SinkError>>| {
        outcomes.into_iter().map(|outcome| outcome.map(drop).map_err(|error| error.kind)).collect::<Vec<_>>()
    };
    let first = kind(sink.deliver(&[to(queue, "before"), large.clone(), to(queue, "after")]).await);
    assert_eq!(first, [Ok(()), Err(SinkErrorKind::Refused), Ok(())], "it went alone, so it is known at once");
    // Nothing was learnt that would outlive a change of the limit.
    let raise = "application:set_env(rabbit, max_message_size, 4000000).";
    tokio::task::block_in_place(|| rabbitmq.control(&["eval", raise]));
    let second = kind(sink.deliver(&[to(queue, "before"), large, to(queue, "after")]).await);
    assert_eq!(second, [Ok(()), Ok(()), Ok(())]);
}

async fn blocked(rabbitmq: &Rabbitmq, queue: &str) {
    let sink = sink_with(&rabbitmq.url(), "");
    one(&sink, queue, "a").await.unwrap();
    tokio::task::block_in_place(|| rabbitmq.control(&["set_vm_memory_high_watermark", "absolute", "1"]));
    let error = one(&sink, queue, "b").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Throttled, "{}", error.detail);
    assert!(error.detail.contains("low on memory"), "{}", error.detail);
    assert_eq!(one(&sink, queue, "c").await.unwrap_err().kind, SinkErrorKind::Throttled, "and not sent");
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Throttled);
    tokio::task::block_in_place(|| {
        rabbitmq.control(&["set_vm_memory_high_watermark", "0.6"]);
        let is_open = || tokio::runtime::Handle::current().block_on(sink.probe()).is_ok();
        wait_until("it takes messages again", Duration::from_secs(60), is_open);
    });
    one(&sink, queue, "c").await.unwrap();
    let there = Reader::new(&rabbitmq.url()).await.ids(queue).await;
    assert_eq!(
        there.iter().filter(|id| *id == "c").count(),
        1,
        "while it blocked nothing was sent: {there:?}"
    );
}
