//! Lost receipts and dead brokers.

use std::{collections::BTreeSet, sync::Arc};

use duly_core::{Delivery, Sink, SinkErrorKind};
use testkit::servers::{
    activemq::{Activemq, installed, shared},
    artemis::{self, Artemis},
    proxy::Proxy,
};

use crate::{failure, ids, one, reader::drain, sink_to, sink_with, to, url};

#[tokio::test]
async fn a_lost_receipt_is_unknown_and_the_same_id_comes_again() {
    if !installed() {
        return;
    }
    let proxy = Proxy::to(shared().port());
    let sink = sink_with(&url(proxy.port()), "request_timeout = '3s'");
    let queue = "orders.once.lost";
    one(&sink, queue, "a").await.unwrap();
    proxy.swallow_answers();
    assert_eq!(failure(&sink, queue, "b").await, SinkErrorKind::Unknown);
    proxy.pass_answers();
    one(&sink, queue, "b").await.unwrap();
    let there = ids(shared(), queue).await;
    let copies = there.iter().filter(|id| *id == "b").count();
    assert!((1..=2).contains(&copies), "{there:?}: a consumer knows copies by their id");
}

#[tokio::test]
async fn a_connection_that_is_cut_is_noticed_at_once() {
    if !installed() {
        return;
    }
    let proxy = Proxy::to(shared().port());
    let sink = sink_with(&url(proxy.port()), "request_timeout = '10m'");
    let queue = "orders.once.cut";
    one(&sink, queue, "a").await.unwrap();
    proxy.cut_on(b"duly-id:b", 1);
    assert_eq!(failure(&sink, queue, "b").await, SinkErrorKind::Unknown, "long before its time is over");
    one(&sink, queue, "b").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_in_mid_batch_and_started_again_has_everything() {
    if !installed() {
        return;
    }
    let broker = Activemq::single();
    let sink = sink_to(&broker);
    let queue = "orders.killed";
    let unknown = killed_twice(&sink, queue, || broker.restart()).await;
    has_everything(&ids(&broker, queue).await, unknown);

    let impatient = sink_with(&broker.url(), "request_timeout = '4s'");
    one(&impatient, queue, "before").await.unwrap();
    broker.pause();
    assert_eq!(failure(&impatient, queue, "b").await, SinkErrorKind::Unknown, "it was sent");
    assert_eq!(failure(&impatient, queue, "c").await, SinkErrorKind::Unreachable, "this one was not");
    assert_eq!(impatient.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    broker.cont();
    one(&sink, queue, "after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artemis_killed_in_mid_batch_and_started_again_has_everything() {
    if !artemis::installed() {
        return;
    }
    let broker = Artemis::single();
    let sink = sink_with(&broker.url(), "request_timeout = '60s'");
    let queue = "orders.killed";
    let unknown = killed_twice(&sink, queue, || broker.restart()).await;
    let port = broker.port();
    let there = tokio::task::spawn_blocking(move || drain(port, queue)).await.unwrap();
    let ids: Vec<_> = there.iter().map(|arrival| arrival.id.to_string()).collect();
    has_everything(&ids, unknown);
}

const MESSAGES: usize = 3_000;

/// Delivers until all is taken, while the broker is killed twice. How many outcomes were unknown.
async fn killed_twice(sink: &Arc<dyn Sink>, queue: &str, restart: impl Fn()) -> usize {
    let mut left: Vec<Delivery> = (0..MESSAGES).map(|n| to(queue, &format!("m{n}"))).collect();
    let (mut kills, mut unknown) = (0, 0);
    while !left.is_empty() {
        let (answers, ()) = tokio::join!(sink.deliver(&left), async {
            if kills < 2 {
                tokio::task::spawn_blocking(|| {}).await.unwrap();
                tokio::task::block_in_place(&restart);
                kills += 1;
            }
        });
        let is_unknown = |error: &&duly_core::SinkError| error.kind == SinkErrorKind::Unknown;
        unknown += answers.iter().filter_map(|answer| answer.as_ref().err()).filter(is_unknown).count();
        let taken: BTreeSet<usize> = (0..left.len()).filter(|n| answers[*n].is_ok()).collect();
        let mut place = 0;
        left.retain_mut(|delivery| {
            delivery.attempt += 1;
            place += 1;
            !taken.contains(&(place - 1))
        });
    }
    unknown
}

/// All that was acknowledged is there, and no copy that is not of something unknown.
fn has_everything(there: &[String], unknown: usize) {
    let different: BTreeSet<_> = there.iter().collect();
    assert_eq!(different.len(), MESSAGES, "all that was acknowledged is there");
    assert!(there.len() - MESSAGES <= unknown, "{} copies of {unknown} unknown", there.len() - MESSAGES);
}
