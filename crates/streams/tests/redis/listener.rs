//! Listening by type.

use std::{collections::BTreeSet, time::Duration};

use duly_streams::{Entry, Error, Settings, StartFrom};
use testkit::servers::redis::{Redis, installed};
use tokio::sync::mpsc;

use crate::{Order, connect, listen, next, pending, quick, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_heard_as_the_type_it_was_sent_as_and_acknowledged() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    // Also what was sent before anybody listened.
    let first = streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    let entry = next(&mut inbox).await;
    assert_eq!((entry.value, entry.id), (Order { number: 1 }, first));
    streams.send("order.placed", &Order { number: 2 }).await.unwrap();
    let entry = next(&mut inbox).await;
    assert_eq!(entry.value, Order { number: 2 });
    assert!(entry.message_id().is_some() && entry.field("content-type") == Some(b"application/json"));
    wait_until("both are acknowledged", || pending(&redis, "order.placed") == 0);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_handled_by_one_of_a_group_and_by_every_group() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (received, mut inbox) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for group in ["a", "a", "b"] {
        let streams = connect(&redis, Settings { group: group.into(), ..Settings::default() }).await;
        let received = received.clone();
        let hand_on = move |order: Entry<Order>| {
            let reported = received.send((group, order.value.number)).map_err(|_| "nobody listens");
            async move { reported }
        };
        streams.listener("order.placed", hand_on).start().await.unwrap();
        all.push(streams);
    }
    for number in 0..200 {
        all[0].send("order.placed", &Order { number }).await.unwrap();
    }
    let mut reported = BTreeSet::new();
    for _ in 0..400 {
        assert!(reported.insert(next(&mut inbox).await), "twice");
    }
    for streams in all {
        streams.shutdown().await.unwrap();
    }
    assert!(inbox.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_may_begin_with_what_is_sent_from_now_on() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings { from: StartFrom::Now, ..Settings::default() }).await;
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    streams.send("order.placed", &Order { number: 2 }).await.unwrap();
    assert_eq!(next(&mut inbox).await.value.number, 2);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_enabled_only_sends() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings { enabled: false, ..Settings::default() }).await;
    let listener = streams
        .listener("order.placed", |_: Entry<Order>| async { Ok::<_, String>(()) })
        .start()
        .await
        .unwrap();
    assert!(!listener.is_running());
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    streams.delay_send("order.placed", &Order { number: 2 }, Duration::from_millis(1)).await.unwrap();
    streams.shutdown().await.unwrap();
    assert_eq!(redis.run::<usize>(&["XLEN", "order.placed"]), 1, "others deliver what is for later");
    let streams = connect(&redis, quick()).await;
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    let mut both = [next(&mut inbox).await.value.number, next(&mut inbox).await.value.number];
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_handlers_finish_and_leaves_nothing_behind() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (go, removed) = tokio::sync::watch::channel(false);
    let slow = move |_: Entry<Order>| {
        let (begun, mut removed) = (begun.clone(), removed.clone());
        async move {
            let _ = begun.send(());
            removed.wait_for(|go| *go).await.map(drop).map_err(|_| "nobody lets it go")
        }
    };
    let listener = streams.listener("order.placed", slow.clone()).start().await.unwrap();
    assert!(listener.is_running());
    let twice = streams.listener("order.placed", slow.clone()).start().await;
    assert!(matches!(twice, Err(Error::Invalid(why)) if why.contains("stop it first")));
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    next(&mut beginning).await;
    let stopping = tokio::spawn(listener.stop());
    assert_eq!(pending(&redis, "order.placed"), 1);
    go.send_replace(true);
    stopping.await.unwrap();
    assert_eq!(pending(&redis, "order.placed"), 0);
    let consumers: Vec<redis::Value> = redis.run(&["XINFO", "CONSUMERS", "order.placed", "duly-streams"]);
    assert!(consumers.is_empty(), "{consumers:?}");
    streams.send("order.placed", &Order { number: 2 }).await.unwrap();
    assert!(beginning.try_recv().is_err(), "nobody listens any more");
    streams.listener("order.placed", slow).start().await.unwrap();
    next(&mut beginning).await;
    streams.shutdown().await.unwrap();
    assert_eq!(pending(&redis, "order.placed"), 0);
}
