//! D10: order within a key.

use std::{collections::HashMap, sync::Arc, time::Duration};

use duly_streams::{Entry, Error, Handler, Message, Streams};
use tokio::sync::mpsc;

use crate::{Order, next, quick, server::both};

type HandledSender = mpsc::UnboundedSender<(&'static str, String, u64, bool)>;

/// Says what it was given, and fails at first on some.
async fn listen(streams: &Streams, name: &'static str, received: HandledSender) -> duly_streams::Listener {
    let handler = move |order: Entry<Order>| {
        let fails = order.value.number % 7 == 3 && order.attempt() == 1;
        let key = order.text("customer").unwrap_or_default().to_owned();
        let _ = received.send((name, key, order.value.number, fails));
        async move {
            tokio::task::yield_now().await;
            if fails { Err("not today") } else { Ok(()) }
        }
    };
    streams.listener("order", handler).consumer(name).ordered_by_field("customer").start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_one_key_keep_their_order_through_failures_and_when_another_consumer_takes_over() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let one = listen(&streams, "one", received.clone()).await;
        let two = listen(&streams, "two", received.clone()).await;
        const EACH: u64 = 60;
        for number in 0..EACH {
            for customer in ["a", "b", "c"] {
                let message =
                    Message::json(&Order { number }).unwrap().property("customer", customer).unwrap();
                streams.send_message("order", &message).await.unwrap();
            }
        }
        let (mut last, mut done) = (HashMap::<String, u64>::new(), 0);
        let mut running = Some((one, two));
        let mut consumers = Vec::new();
        while done < 3 * EACH {
            let (name, key, number, fails) = next(&mut inbox).await;
            let expected = last.get(&key).map_or(0, |last| last + 1);
            // At least once: at a change one may come again, but none is passed over and none comes early.
            assert!(number <= expected, "{key}: {number} came before {expected}");
            if !consumers.contains(&name) {
                consumers.push(name);
            }
            if number == expected && !fails {
                last.insert(key, number);
                done += 1;
            }
            if done == EACH
                && let Some((one, two)) = running.take()
            {
                // Whoever is at work stops; the other one takes over.
                let first = if name == "one" { one } else { two };
                first.stop().await;
            }
        }
        assert_eq!(consumers.len(), 2, "one after the other: {consumers:?}");
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_batches_cannot_keep_order() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let handler = Handler::batch(|_: Vec<Entry<Order>>| async { Ok::<(), String>(()) });
        let refused = streams.listener("order", handler).ordered_by(|_| Some("k")).start().await;
        assert!(matches!(refused, Err(Error::Invalid(_))));
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_do_not_wait_for_each_other() {
    for server in both() {
        let streams = server
            .connect(duly_streams::Settings { processing_timeout: Duration::from_secs(20), ..quick() })
            .await;
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let (received, mut inbox) = mpsc::unbounded_channel();
        let handler = {
            let gate = gate.clone();
            move |order: Entry<Order>| {
                let (gate, received) = (gate.clone(), received.clone());
                async move {
                    if order.value.number == 0 {
                        gate.acquire().await.map_err(|_| "closed")?.forget();
                    }
                    received.send(order.value.number).map_err(|_| "nobody listens")
                }
            }
        };
        streams
            .listener("order", handler)
            .ordered_by(|entry| entry.json::<Order>().ok().map(|o| (o.number % 2).to_string()))
            .start()
            .await
            .unwrap();
        for number in 0..6 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let odd = [next(&mut inbox).await, next(&mut inbox).await, next(&mut inbox).await];
        assert_eq!(odd, [1, 3, 5]);
        gate.add_permits(1);
        let even = [next(&mut inbox).await, next(&mut inbox).await, next(&mut inbox).await];
        assert_eq!(even, [0, 2, 4]);
        streams.shutdown().await.unwrap();
    }
}
