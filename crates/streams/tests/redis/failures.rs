//! One bad event stops nobody.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use duly_streams::{Entry, Retry, Settings};
use testkit::servers::redis::{Redis, installed};
use tokio::sync::mpsc;

use crate::{Order, connect, listen, next, pending, quick, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn errors_panics_and_handlers_that_hang_stop_nobody_and_are_tried_again() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams =
        connect(&redis, Settings { retry: Retry { attempts: 0, ..quick().retry }, ..quick() }).await;
    let (received, mut inbox) = mpsc::unbounded_channel();
    // The bad ones are bad once at least, and for as long as the good ones have not been heard.
    let tries: [AtomicUsize; 3] = Default::default();
    let (tries, good) = (Arc::new(tries), Arc::new(AtomicUsize::new(0)));
    let moody = {
        let good = good.clone();
        move |order: Entry<Order>| {
            let (received, tries, good) = (received.clone(), tries.clone(), good.clone());
            async move {
                let is_bad = tries.get(order.value.number as usize).is_some_and(|tries| {
                    tries.fetch_add(1, Ordering::Relaxed) == 0 || good.load(Ordering::Relaxed) < 7
                });
                match order.value.number {
                    0 if is_bad => return Err("not today"),
                    1 if is_bad => panic!("a bug"),
                    2 if is_bad => std::future::pending().await,
                    number => received.send(number).map_err(|_| "nobody listens")?,
                }
                Ok(())
            }
        }
    };
    streams.listener("order.placed", moody).start().await.unwrap();
    let mut other = listen::<Order>(&streams, "order.paid").await;
    for number in 0..10 {
        streams.send("order.placed", &Order { number }).await.unwrap();
        streams.send("order.paid", &Order { number }).await.unwrap();
    }
    let mut first = Vec::new();
    for _ in 0..7 {
        first.push(next(&mut inbox).await);
        next(&mut other).await;
        good.fetch_add(1, Ordering::Relaxed);
    }
    first.sort_unstable();
    assert_eq!(first, [3, 4, 5, 6, 7, 8, 9], "the good ones did not wait for the bad ones");
    let mut again = [next(&mut inbox).await, next(&mut inbox).await, next(&mut inbox).await];
    again.sort_unstable();
    assert_eq!(again, [0, 1, 2]);
    wait_until("all are acknowledged", || pending(&redis, "order.placed") == 0);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_another_type_is_told_and_is_a_dead_letter_at_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (reported, mut telling) = mpsc::unbounded_channel();
    let (received, mut inbox) = mpsc::unbounded_channel();
    let times = AtomicUsize::new(0);
    let hand_on = move |order: Entry<Order>| {
        let reported = received.send(order.value.number).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams
        .listener("order.placed", hand_on)
        .on_undecodable(move |bad| {
            // The first time nobody gets to know of it: then it must be told again.
            assert!(times.fetch_add(1, Ordering::Relaxed) > 0, "a bug in the callback");
            let _ = reported.send((
                bad.event.clone(),
                bad.why.clone(),
                bad.entry.field("body").map(<[u8]>::to_vec),
            ));
        })
        .start()
        .await
        .unwrap();
    streams.send("order.placed", "no order").await.unwrap();
    streams.send("order.placed", &Order { number: 7 }).await.unwrap();
    assert_eq!(next(&mut inbox).await, 7);
    let (event, why, body) = next(&mut telling).await;
    assert_eq!((event.as_str(), body.as_deref()), ("order.placed", Some(&b"\"no order\""[..])));
    assert!(why.contains("Order"), "{why}");
    wait_until("both are acknowledged", || pending(&redis, "order.placed") == 0);
    assert_eq!(redis.run::<usize>(&["XLEN", "order.placed"]), 2, "it stays in the stream");
    let letter = crate::entries(&redis, "order.placed_dlq").remove(0);
    assert_eq!(letter["body"], "\"no order\"");
    assert!(letter["duly-dead-reason"].starts_with("it cannot be decoded"), "{letter:?}");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_left_it_finishes_at_its_next_start() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    // So long that nobody else takes it over meanwhile.
    let settings = Settings { consumer: Some("one".into()), ..Settings::default() };
    let streams = connect(&redis, settings.clone()).await;
    let (failed, mut failing) = mpsc::unbounded_channel();
    let fail = move |order: Entry<Order>| {
        let _ = failed.send(order.value.number);
        async { Err::<(), _>("not today") }
    };
    streams.listener("order.placed", fail).start().await.unwrap();
    for number in 0..40 {
        streams.send("order.placed", &Order { number }).await.unwrap();
    }
    for _ in 0..40 {
        next(&mut failing).await;
    }
    streams.shutdown().await.unwrap();
    assert_eq!(pending(&redis, "order.placed"), 40);
    let streams = connect(&redis, settings).await;
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    let mut all = Vec::new();
    for _ in 0..40 {
        all.push(next(&mut inbox).await.value.number);
    }
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
    wait_until("all are acknowledged", || pending(&redis, "order.placed") == 0);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_go_on_when_redis_is_back_and_when_the_stream_was_deleted() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    redis.run::<()>(&["DEL", "order.placed"]);
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    assert_eq!(next(&mut inbox).await.value.number, 1);
    redis.restart();
    let number = 2;
    while streams.send("order.placed", &Order { number }).await.is_err() {}
    while next(&mut inbox).await.value.number != number {}
    streams.shutdown().await.unwrap();
}
