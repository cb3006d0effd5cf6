//! One destination that is forbidden, full or silent leaves the others alone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_core::{Body, Delivery, DeliveryResult, ErrorScope, Outcomes, Sink, SinkError, SinkErrorKind};
use lapin::types::FieldTable;
use testkit::servers::rabbitmq::{FEW, installed, shared, unconfirming_broker};
use tokio::sync::Notify;

use crate::{Reader, one, quorum, sink_with, to};

/// The outcomes of a call, each noted when it is reported.
#[derive(Default)]
struct ReportedOutcomes {
    results: Mutex<Vec<(usize, DeliveryResult)>>,
    reported: Notify,
}

impl ReportedOutcomes {
    async fn deliver(&self, sink: &Arc<dyn Sink>, batch: &[Delivery]) {
        let report = |index: usize, result: DeliveryResult| {
            self.results.lock().unwrap().push((index, result));
            self.reported.notify_one();
        };
        sink.deliver_each(batch, &Outcomes::new(&report)).await;
    }

    /// Until so many outcomes are there.
    async fn count(&self, count: usize) {
        while self.results.lock().unwrap().len() < count {
            self.reported.notified().await;
        }
    }
}

#[tokio::test]
async fn a_forbidden_exchange_is_denied_and_those_beside_it_are_confirmed() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.queue().await;
    reader.internal_exchange("inside").await;
    let sink = sink_with(&shared().url(), "");
    for round in 0..5 {
        let topic = |n: usize| if n % 10 == 3 { "inside/x" } else { &queue };
        let batch: Vec<_> = (0..100).map(|n| to(topic(n), &format!("r{round}-{n}"))).collect();
        for (n, outcome) in sink.deliver(&batch).await.into_iter().enumerate() {
            match outcome {
                Ok(_) => assert_ne!(n % 10, 3),
                Err(error) => {
                    let (kind, scope) = (error.kind, error.scope);
                    assert_eq!(
                        (kind, scope),
                        (SinkErrorKind::Denied, ErrorScope::Destination),
                        "{n}: {error}"
                    );
                    assert!(n % 10 == 3 && error.detail.contains("ACCESS_REFUSED"), "{n}: {error}");
                }
            }
        }
    }
    assert_eq!(reader.ids(&queue).await.len(), 450, "none was sent twice");
}

#[tokio::test]
async fn a_forbidden_routing_key_is_denied_and_its_exchange_goes_on() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("allowed", "key.#").await;
    let (user, password) = FEW;
    let mut confirmed = Vec::new();
    // The words in which the broker names a key have room for some 220 bytes of it.
    for forbidden in ["forbidden.a".to_owned(), format!("forbidden.{}", "long".repeat(55))] {
        let sink = sink_with(&format!("amqp://{user}:{password}@127.0.0.1:{}", shared().port()), "");
        let known = format!("known-{}", forbidden.len());
        one(&sink, "allowed/key.a", &known).await.unwrap();
        confirmed.push(known);
        for round in 0..3 {
            let key = |n: usize| {
                if n.is_multiple_of(5) { format!("allowed/{forbidden}") } else { format!("allowed/key.{n}") }
            };
            let id = |n: usize| format!("l{}-r{round}-{n}", forbidden.len());
            let batch: Vec<_> = (0..50).map(|n| to(&key(n), &id(n))).collect();
            for (n, outcome) in sink.deliver(&batch).await.into_iter().enumerate() {
                match outcome {
                    Ok(_) => confirmed.push(id(n)),
                    Err(error) if n % 5 == 0 => assert_eq!(error.kind, SinkErrorKind::Denied, "{n}: {error}"),
                    // What was under way on its channel when the broker first met the forbidden key.
                    Err(error) => assert!(round == 0 && error.kind == SinkErrorKind::Unknown, "{n}: {error}"),
                }
            }
        }
    }
    assert!(confirmed.len() > 160, "{confirmed:?}");
    let there = reader.ids(&queue).await;
    assert!(confirmed.iter().all(|id| there.contains(id)), "{there:?}");
    let distinct: BTreeSet<_> = there.iter().collect();
    assert_eq!(distinct.len(), there.len(), "none was sent twice within its call");
}

#[tokio::test]
async fn the_exchange_and_the_routing_key_are_the_destination() {
    let destination = |settings: &str, topic: &str| {
        let sink = sink_with("amqp://127.0.0.1", settings);
        let mut message = to(topic, "a").message;
        message.tag = Some("paid".parse().unwrap());
        sink.destination(&message).into_owned()
    };
    assert_eq!(destination("", "orders"), "orders");
    assert_eq!(destination("", "/orders"), "orders", "the same queue");
    assert_eq!(destination("", "shop/orders.new"), "shop/orders.new");
    assert_eq!(destination("", "/a/b"), "/a/b", "and not the exchange a");
    assert_eq!(destination("exchange = 'shop'", "/orders"), "/orders");
    assert_eq!(destination("exchange = 'shop'\ntag_in_key = true", "orders"), "orders.paid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_queue_holds_up_no_other_and_is_told_apart_from_a_silent_broker() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    // By the hashes of their names these two have no channel in common: what is published behind a silent queue waits for it.
    let good = reader.queue_named("quiet", FieldTable::default()).await;
    let silent = reader.queue_named("stalled", quorum()).await;
    let sink = sink_with(&shared().url(), "request_timeout = '6s'");
    one(&sink, &silent, "before").await.unwrap();
    one(&sink, &good, "before").await.unwrap();
    tokio::task::block_in_place(|| shared().suspend_queues(&[&silent]));

    // Far more than it takes for the broker to stop reading from a connection, and than the windows of its channels let pass.
    let topic = |n: usize| if n.is_multiple_of(2) { &silent } else { &good };
    let batch: Vec<_> = (0..4_000).map(|n| to(topic(n), &format!("m{n}"))).collect();
    let reported_outcomes = ReportedOutcomes::default();
    let others = async {
        reported_outcomes.count(1_500).await;
        let first: Vec<usize> =
            reported_outcomes.results.lock().unwrap().iter().map(|(index, _)| *index).collect();
        assert!(first.iter().filter(|index| *index % 2 != 0).count() >= 1_000, "they do not wait");
        for n in 0..20 {
            one(&sink, &good, &format!("beside-{n}")).await.unwrap();
        }
        assert!(
            reported_outcomes.results.lock().unwrap().len() < batch.len(),
            "calls beside it end before it does"
        );
    };
    tokio::join!(reported_outcomes.deliver(&sink, &batch), others);
    let mut unknown = 0;
    for (index, result) in reported_outcomes.results.lock().unwrap().iter() {
        match result {
            Ok(_) => assert_ne!(index % 2, 0),
            Err(error) => {
                assert_eq!(index % 2, 0, "{error}");
                assert_eq!(error.scope, ErrorScope::Destination, "{error}");
                let kinds = [SinkErrorKind::Unknown, SinkErrorKind::Unreachable];
                assert!(kinds.contains(&error.kind), "{error}");
                unknown += usize::from(error.kind == SinkErrorKind::Unknown);
            }
        }
    }
    // Eight channels with a window of 100 each, and one more now and then to see whether it is back.
    assert!((3..=820).contains(&unknown), "{unknown} were sent and not confirmed");
    tokio::task::block_in_place(|| shared().resume_queues(&[&silent]));
    let back = async { while one(&sink, &silent, "back").await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("it takes messages again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_silent_queues_than_shared_channels_hold_up_no_other() {
    const SILENT: usize = 18;
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let good = reader.queue().await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(reader.quorum_queue().await);
    }
    let sink = sink_with(&shared().url(), "request_timeout = '2s'");
    one(&sink, &good, "before").await.unwrap();
    let names: Vec<&str> = silent.iter().map(String::as_str).collect();
    tokio::task::block_in_place(|| shared().suspend_queues(&names));
    // More than a channel takes before it stands still.
    let batch: Vec<_> = (0..SILENT * 90).map(|n| to(&silent[n % SILENT], &format!("s{n}"))).collect();
    assert!(sink.deliver(&batch).await.iter().all(Result::is_err), "they are silent");
    for n in 0..10 {
        one(&sink, &good, &format!("after-{n}")).await.unwrap();
    }
    tokio::task::block_in_place(|| shared().resume_queues(&names));
}

/// A URL by which the broker allows so many channels.
fn url_with_channels(count: u16) -> String {
    format!("{}/%2f?channel_max={count}", shared().url())
}

#[tokio::test]
async fn few_channels_are_enough_for_many_queues_and_new_exchanges() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let mut topics = Vec::new();
    for n in 0..12 {
        topics.push(reader.queue().await);
        let exchange = format!("channels-{n}");
        reader.exchange(&exchange, "#").await;
        topics.push(format!("{exchange}/key"));
    }
    let sink = sink_with(&url_with_channels(3), "");
    for round in 0..2 {
        let batch: Vec<_> =
            topics.iter().enumerate().map(|(n, topic)| to(topic, &format!("r{round}-{n}"))).collect();
        for (outcome, topic) in sink.deliver(&batch).await.into_iter().zip(&topics) {
            outcome.unwrap_or_else(|error| panic!("{topic}: {error}"));
        }
    }
    sink.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_free_channel_is_not_taken_for_a_silent_broker() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let silent = reader.quorum_queue().await;
    reader.exchange("no-channel", "#").await;
    let sink = sink_with(&url_with_channels(1), "request_timeout = '3s'");
    tokio::task::block_in_place(|| shared().suspend_queues(&[&silent]));
    // It takes the only channel, and keeps it as long as the queue is silent.
    let unconfirmed = one(&sink, &silent, "a").await.unwrap_err();
    let unsent = one(&sink, "no-channel/key", "b").await.unwrap_err();
    tokio::task::block_in_place(|| shared().resume_queues(&[&silent]));
    let kind = |error: &SinkError| (error.kind, error.scope);
    assert_eq!(kind(&unconfirmed), (SinkErrorKind::Unknown, ErrorScope::Destination), "{unconfirmed}");
    // That is no fault of the broker.
    assert_eq!(kind(&unsent), (SinkErrorKind::Unreachable, ErrorScope::Destination), "{unsent}");
    let back = async { while one(&sink, &silent, "back").await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("its connection goes on");
}

#[tokio::test]
async fn the_channel_of_an_unconfirmed_message_is_closed_with_its_call() {
    // One channel is shared. The other is for what goes alone, as a large body does.
    let url = format!("amqp://127.0.0.1:{}/%2f?channel_max=2", unconfirming_broker().await);
    let sink = sink_with(&url, "request_timeout = '1s'");
    for (n, size) in [1, 100_000, 200_000].into_iter().enumerate() {
        let mut delivery = to("orders", &format!("m{n}"));
        delivery.message.body = Body::bytes(vec![0; size]);
        let error = sink.deliver(&[delivery]).await.remove(0).unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Unknown, ErrorScope::Destination), "{error}");
    }
}
