//! Joining the store of delayed events again: who only delivers makes no call that would fail.

use std::time::Duration;

use duly_streams::{Settings, Streams};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, entries, quick, wait_until};

/// One that sends and delivers nothing.
async fn sender(redis: &Redis) -> Streams {
    connect(redis, Settings { enabled: false, allow_volatile: true, ..quick() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_could_not_join_at_first_delivers_when_it_can() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["SET", "duly:{streams}:store", "x"]);
    let streams = connect(&redis, quick()).await;
    assert!(streams.cancel("x").await.is_err(), "it could not join");
    redis.run::<()>(&["DEL", "duly:{streams}:store"]);
    let sender = sender(&redis).await;
    sender.delay_send("order.unpaid", &Order { number: 1 }, Duration::ZERO).await.unwrap();
    wait_until("it is delivered", || entries(&redis, "order.unpaid").len() == 1);
    sender.shutdown().await.unwrap();
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_delivers_joins_again_when_redis_lost_its_data() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings { allow_volatile: true, ..quick() }).await;
    redis.run::<()>(&["FLUSHALL"]);
    let sender = sender(&redis).await;
    sender.delay_send("order.unpaid", &Order { number: 1 }, Duration::ZERO).await.unwrap();
    wait_until("it is delivered", || entries(&redis, "order.unpaid").len() == 1);
    sender.shutdown().await.unwrap();
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_replaced_by_another_of_its_name_goes_on_under_a_name_of_its_own() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let named = || Settings { consumer: Some("same".into()), ..quick() };
    let (first, second) = (connect(&redis, named()).await, connect(&redis, named()).await);
    let nodes = || redis.run::<Vec<Vec<u8>>>(&["HVALS", "duly:{streams}:nodes"]);
    let is_renamed = |reported: &Vec<u8>| reported.windows(5).any(|part| part == b"same-");
    wait_until("both are there", || {
        let nodes = nodes();
        nodes.len() == 2 && nodes.iter().filter(|reported| is_renamed(reported)).count() == 1
    });
    first.delay_send("order.unpaid", &Order { number: 1 }, Duration::ZERO).await.unwrap();
    second.delay_send("order.unpaid", &Order { number: 2 }, Duration::ZERO).await.unwrap();
    wait_until("both are delivered", || entries(&redis, "order.unpaid").len() == 2);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}
