//! Sending for later.

use std::time::Duration;

use redis_mq::{Changed, Error, RedisMq, Settings};
use testkit::servers::redis::{Options, Redis, installed};

use crate::{Order, connect, entries, hear, next};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_later_arrives_once_and_never_early() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    let mut hearing = hear::<Order>(&mq, "order.unpaid").await;
    let (seconds, micros): (u64, u64) = redis.run(&["TIME"]);
    let sent = seconds * 1000 + micros / 1000;
    let id = mq.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_millis(700)).await.unwrap();
    let entry = next(&mut hearing).await;
    assert_eq!((entry.value.number, entry.message_id()), (42, Some(id.as_str())));
    let appended: u64 = entry.id.as_str().split_once('-').unwrap().0.parse().unwrap();
    assert!(appended >= sent + 700, "{appended} {sent}");
    let fields = entries(&redis, "order.unpaid").remove(0);
    assert_eq!(
        (fields["body"].as_str(), fields["content-type"].as_str()),
        (r#"{"number":42}"#, "application/json")
    );
    assert!(fields["duly-due"].parse::<u64>().unwrap() >= sent + 700);
    assert_eq!(fields["duly-attempt"], "1");
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_values_for_later_are_two_entries() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    let mut hearing = hear::<Order>(&mq, "order.unpaid").await;
    let order = Order { number: 42 };
    let first = mq.delay_send("order.unpaid", &order, Duration::from_millis(50)).await.unwrap();
    let second = mq.delay_send("order.unpaid", &order, Duration::from_millis(50)).await.unwrap();
    assert_ne!(first, second);
    for _ in 0..2 {
        assert_eq!(next(&mut hearing).await.value, order);
    }
    mq.shutdown().await.unwrap();
    assert_eq!(entries(&redis, "order.unpaid").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_never_arrives() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    let mut hearing = hear::<Order>(&mq, "order.unpaid").await;
    let paid = mq.delay_send("order.unpaid", &Order { number: 1 }, Duration::from_millis(300)).await.unwrap();
    assert!(matches!(mq.cancel(&paid).await.unwrap(), Changed::Done { .. }));
    let id = mq.delay_send("order.unpaid", &Order { number: 2 }, Duration::from_millis(400)).await.unwrap();
    assert_eq!(next(&mut hearing).await.value.number, 2);
    assert_eq!(entries(&redis, "order.unpaid").len(), 1);
    assert!(!matches!(mq.cancel(&id).await.unwrap(), Changed::Done { .. }), "too late");
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_outlives_the_process_that_sent_it() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    mq.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_millis(500)).await.unwrap();
    mq.shutdown().await.unwrap();
    let mq = connect(&redis, Settings::default()).await;
    let mut hearing = hear::<Order>(&mq, "order.unpaid").await;
    assert_eq!(next(&mut hearing).await.value.number, 42);
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_may_lose_what_waits_is_refused_unless_allowed() {
    if !installed() {
        return;
    }
    let redis = Redis::with(Options { aof: false, ..Options::default() });
    let refused = RedisMq::connect(&redis.url()).await.unwrap_err();
    assert!(matches!(&refused, Error::Delayed(why) if why.to_string().contains("append-only")), "{refused}");
    let mq = connect(&redis, Settings { allow_volatile: true, ..Settings::default() }).await;
    mq.shutdown().await.unwrap();
}
