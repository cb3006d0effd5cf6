//! D4: failures are counted where they outlive everybody, tries wait, and there is a last one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_streams::{Backoff, Entry, Handler, Retry, Settings, Verdict};
use tokio::{sync::mpsc, time::Instant};

use crate::{Order, next, quick, server::both, wait_until};

fn always_fail(reported: mpsc::UnboundedSender<u32>) -> Handler {
    Handler::each(move |order: Entry<Order>| {
        let _ = reported.send(order.attempt());
        async { Err::<(), _>("not today") }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_tried_to_the_limit_and_then_is_a_dead_letter() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (reported, mut telling) = mpsc::unbounded_channel();
        streams.listener("order", always_fail(reported)).attempts(3).start().await.unwrap();
        let id = streams.send("order", &Order { number: 7 }).await.unwrap();
        let tries = [next(&mut telling).await, next(&mut telling).await, next(&mut telling).await];
        assert_eq!(tries, [1, 2, 3]);
        let dead = server.dead("order");
        wait_until("it is a dead letter", || server.len(&dead) == 1);
        let letter = server.entries(&dead).remove(0);
        assert_eq!(letter["body"], r#"{"number":7}"#);
        assert_eq!(
            (letter["duly-dead-reason"].as_str(), letter["duly-dead-attempts"].as_str()),
            ("not today", "3")
        );
        assert_eq!(
            (letter["duly-dead-id"].as_str(), letter["duly-dead-group"].as_str()),
            (id.as_str(), "duly-streams")
        );
        assert_eq!(server.pending("order", "duly-streams"), 0);
        assert!(
            server.beside("order").is_empty(),
            "nothing is left of its count: {:?}",
            server.beside("order")
        );
        streams.shutdown().await.unwrap();
        assert!(telling.try_recv().is_err(), "no try more than the limit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_outlives_the_process_and_is_the_groups() {
    for server in both() {
        // A wait so long that the second try is not before the restart.
        let retry = Retry {
            attempts: 3,
            min: Duration::from_millis(700),
            backoff: Backoff::Fixed,
            ..Retry::default()
        };
        let settings = Settings { retry, ..quick() };
        let (reported, mut telling) = mpsc::unbounded_channel();
        for attempt in 1..=3 {
            let streams = server.connect(settings.clone()).await;
            streams.listener("order", always_fail(reported.clone())).start().await.unwrap();
            if attempt == 1 {
                streams.send("order", &Order { number: 1 }).await.unwrap();
            }
            assert_eq!(next(&mut telling).await, attempt);
            streams.shutdown().await.unwrap();
        }
        assert_eq!(server.entries(&server.dead("order"))[0]["duly-dead-attempts"], "3");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_wait_their_interval_and_others_do_not_wait_for_them() {
    for server in both() {
        let retry = Retry { min: Duration::from_millis(600), backoff: Backoff::Fixed, ..Retry::default() };
        let streams = server.connect(Settings { retry, concurrency: 1, ..quick() }).await;
        let (reported, mut telling) = mpsc::unbounded_channel();
        let moody = move |order: Entry<Order>| {
            let _ = reported.send((order.value.number, order.attempt(), Instant::now()));
            let fails = order.value.number == 0 && order.attempt() == 1;
            async move { if fails { Err("not today") } else { Ok(()) } }
        };
        streams.listener("order", moody).start().await.unwrap();
        for number in 0..5 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let mut all = Vec::new();
        for _ in 0..6 {
            all.push(next(&mut telling).await);
        }
        let numbers: Vec<_> = all.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 0], "the others did not wait");
        assert!(all[5].2 - all[0].2 >= Duration::from_millis(600), "never before its time");
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_say_when_to_try_again_or_that_it_never_works() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let judge = {
            let seen = seen.clone();
            move |order: Entry<Order>| {
                seen.lock().unwrap().push((order.value.number, order.attempt()));
                let verdict = match (order.value.number, order.attempt()) {
                    (0, 1) => Verdict::retry_after(Duration::from_millis(1)).because("busy"),
                    (1, _) => Verdict::give_up("no such customer"),
                    _ => Verdict::Done,
                };
                async move { Ok::<_, String>(verdict) }
            }
        };
        streams.listener("order", judge).start().await.unwrap();
        for number in 0..2 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        wait_until("both are settled", || {
            seen.lock().unwrap().len() == 3 && server.pending("order", "duly-streams") == 0
        });
        let letters = server.entries(&server.dead("order"));
        assert_eq!(letters.len(), 1);
        assert_eq!(
            (letters[0]["duly-dead-reason"].as_str(), letters[0]["duly-dead-attempts"].as_str()),
            ("no such customer", "1")
        );
        streams.shutdown().await.unwrap();
    }
}
