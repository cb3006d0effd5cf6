//! D2, D8 and D10: handlers of every kind, filters, priorities.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly_streams::{Entry, Handler, Message, Priority, Settings, Verdict};
use tokio::sync::mpsc;

use crate::{Order, next, quick, server::both, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_names_its_topic_group_and_consumer_and_makes_the_group() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let hand_on = move |order: Entry<Order>| std::future::ready(received.send(order).map_err(|_| "gone"));
        streams.subscribe("order", "billing", "one", hand_on).start().await.unwrap();
        let id = streams.send("order", &Order { number: 42 }).await.unwrap();
        let entry = next(&mut inbox).await;
        // D8: the id, the fields as they are, and the value.
        assert_eq!((entry.id, entry.value), (id, Order { number: 42 }));
        let consumers: Vec<BTreeMap<String, redis::Value>> =
            server.of("order").run(&["XINFO", "CONSUMERS", "order", "billing"]);
        let name: String = redis::from_redis_value(consumers[0]["name"].clone()).unwrap();
        assert_eq!((consumers.len(), name.as_str()), (1, "one"));
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_wait_or_block_and_take_one_or_many() {
    for server in both() {
        let streams = server.connect(Settings { batch: 10, ..quick() }).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let listen = |name: &'static str| {
            let received = received.clone();
            move |numbers: Vec<u64>| received.send((name, numbers)).map_err(|_| "nobody listens")
        };
        let one = |order: Entry<Order>| vec![order.value.number];
        let many =
            |orders: Vec<Entry<Order>>| orders.iter().map(|order| order.value.number).collect::<Vec<_>>();
        let (each, blocking, batch, blocking_batch) =
            (listen("each"), listen("blocking"), listen("batch"), listen("both"));
        let handlers = [
            Handler::each(move |order| std::future::ready(each(one(order)))),
            Handler::blocking(move |order| blocking(one(order))),
            Handler::batch(move |orders| std::future::ready(batch(many(orders)))),
            Handler::blocking_batch(move |orders| blocking_batch(many(orders))),
        ];
        for number in 0..50 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        for (at, handler) in handlers.into_iter().enumerate() {
            streams.listener("order", handler).group(format!("g{at}")).start().await.unwrap();
        }
        let mut all: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        while all.len() < 4 || all.values().any(|numbers| numbers.len() < 50) {
            let (name, numbers) = next(&mut inbox).await;
            let most = if matches!(name, "batch" | "both") { 10 } else { 1 };
            assert!((1..=most).contains(&numbers.len()), "{name}: {numbers:?}");
            all.entry(name).or_default().extend(numbers);
        }
        for numbers in all.values_mut() {
            numbers.sort_unstable();
            assert_eq!(*numbers, (0..50).collect::<Vec<_>>());
        }
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_that_fails_only_the_culprit_is_blamed() {
    for server in both() {
        let streams = server.connect(quick()).await;
        for number in 0..30 {
            streams.send("order", &Order { number }).await.unwrap();
            streams.send("judged", &Order { number }).await.unwrap();
        }
        let done = Arc::new(AtomicUsize::new(0));
        let handler = {
            let done = done.clone();
            Handler::batch(move |orders: Vec<Entry<Order>>| {
                let done = done.clone();
                async move {
                    assert!(!orders.iter().any(|order| order.value.number == 13), "it is poison");
                    done.fetch_add(orders.len(), Ordering::Relaxed);
                    Ok::<(), String>(())
                }
            })
        };
        streams.listener("order", handler).attempts(3).start().await.unwrap();
        let judge = Handler::batch(|orders: Vec<Entry<Order>>| async move {
            let verdict = |order: &Entry<Order>| match order.value.number {
                13 => Verdict::give_up("poison"),
                _ => Verdict::Done,
            };
            Ok::<Vec<_>, String>(orders.iter().map(verdict).collect())
        });
        streams.listener("judged", judge).start().await.unwrap();
        for topic in ["order", "judged"] {
            let dead = server.dead(topic);
            wait_until("all are settled", || {
                server.len(&dead) == 1 && server.pending(topic, "duly-streams") == 0
            });
            assert_eq!(server.entries(&dead)[0]["body"], r#"{"number":13}"#);
        }
        assert_eq!(server.entries(&server.dead("order"))[0]["duly-dead-attempts"], "3");
        wait_until("the others are done", || done.load(Ordering::Relaxed) == 29);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_passes_over_what_is_not_wanted() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let hand_on = move |order: Entry<Order>| {
            std::future::ready(received.send(order.value.number).map_err(|_| "gone"))
        };
        let by_content = |entry: &Entry<()>| {
            entry.text("region") == Some("eu") && entry.json::<Order>().is_ok_and(|order| order.number >= 5)
        };
        streams.listener("order", hand_on).filter(by_content).concurrency(1).start().await.unwrap();
        for number in 0..10 {
            let region = if number % 2 == 0 { "eu" } else { "us" };
            let message = Message::json(&Order { number }).unwrap().property("region", region).unwrap();
            streams.send_message("order", &message).await.unwrap();
        }
        assert_eq!([next(&mut inbox).await, next(&mut inbox).await], [6, 8]);
        wait_until("all are acknowledged", || server.pending("order", "duly-streams") == 0);
        streams.shutdown().await.unwrap();
        assert!(inbox.try_recv().is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn urgent_ones_come_first_and_none_waits_for_ever() {
    for server in both() {
        let streams = server.connect(quick()).await;
        for (priority, base) in [(Priority::Low, 2_000), (Priority::Normal, 1_000), (Priority::High, 0)] {
            let messages: Vec<_> = (0..100)
                .map(|number| Message::json(&Order { number: base + number }).unwrap().priority(priority))
                .collect();
            for sent in streams.send_messages("order", &messages).await.unwrap() {
                sent.unwrap();
            }
        }
        let (received, mut inbox) = mpsc::unbounded_channel();
        let hand_on = move |order: Entry<Order>| {
            std::future::ready(received.send(order.value.number).map_err(|_| "gone"))
        };
        streams.listener("order", hand_on).concurrency(1).start().await.unwrap();
        let mut all = Vec::new();
        for _ in 0..300 {
            all.push(next(&mut inbox).await / 1_000);
        }
        let first = |priority: u64, count: usize| {
            all.iter().enumerate().filter(|(_, p)| **p == priority).nth(count - 1).map(|(at, _)| at).unwrap()
        };
        assert!(
            first(0, 100) < first(1, 100) && first(1, 100) < first(2, 100),
            "urgent ones are done first: {all:?}"
        );
        assert!(
            first(2, 1) < first(0, 100) && first(1, 1) < first(0, 50),
            "the others get their share: {all:?}"
        );
        // Also those that come later, to a stream that nobody knew of.
        streams
            .send_message("order", &Message::json(&Order { number: 7 }).unwrap().priority(Priority::High))
            .await
            .unwrap();
        next(&mut inbox).await;
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_that_nobody_used_before_is_found_by_listeners_that_run() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let hand_on = move |order: Entry<Order>| {
            std::future::ready(received.send(order.value.number).map_err(|_| "gone"))
        };
        streams.listener("order", hand_on).start().await.unwrap();
        streams.send("order", &Order { number: 1 }).await.unwrap();
        assert_eq!(next(&mut inbox).await, 1);
        for (number, priority) in [(2, Priority::Low), (3, Priority::High)] {
            let message = Message::json(&Order { number }).unwrap().priority(priority);
            streams.send_message("order", &message).await.unwrap();
            assert_eq!(next(&mut inbox).await, number);
        }
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_and_not_begun_is_handed_back_at_a_stop() {
    for server in both() {
        let streams = server
            .connect(Settings { processing_timeout: std::time::Duration::from_secs(3600), ..quick() })
            .await;
        let (begun, mut beginning) = mpsc::unbounded_channel();
        let (go, removed) = tokio::sync::watch::channel(false);
        let slow = move |order: Entry<Order>| {
            let (begun, mut removed) = (begun.clone(), removed.clone());
            async move {
                let _ = begun.send(order.value.number);
                removed.wait_for(|go| *go).await.map(drop).map_err(|_| "nobody lets it go")
            }
        };
        for number in 0..20 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let listener = streams.listener("order", slow).concurrency(2).start().await.unwrap();
        next(&mut beginning).await;
        next(&mut beginning).await;
        assert!(listener.is_running());
        let stopping = tokio::spawn(listener.stop());
        go.send_replace(true);
        stopping.await.unwrap();
        // Nobody waits an hour for what the other had read.
        let (received, mut inbox) = mpsc::unbounded_channel();
        let hand_on = move |order: Entry<Order>| {
            std::future::ready(received.send(order.value.number).map_err(|_| "gone"))
        };
        streams.listener("order", hand_on).consumer("next").start().await.unwrap();
        let mut rest = Vec::new();
        let begun = 2 + std::iter::from_fn(|| beginning.try_recv().ok()).count();
        for _ in begun..20 {
            rest.push(next(&mut inbox).await);
        }
        assert!(rest.iter().all(|number| *number >= 2), "{rest:?}");
        wait_until("all are acknowledged", || server.pending("order", "duly-streams") == 0);
        streams.shutdown().await.unwrap();
    }
}
