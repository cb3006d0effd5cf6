//! Sending now.

use redis_mq::{Error, RedisMq, Settings};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, entries};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_stands_in_the_stream_of_its_event() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    let id = mq.send("order.placed", &Order { number: 42 }).await.unwrap();
    let there: Vec<(String, Vec<String>)> = redis.run(&["XRANGE", "order.placed", "-", "+"]);
    assert_eq!(there[0].0, id.as_str());
    let fields = entries(&redis, "order.placed").remove(0);
    assert_eq!(
        (fields["body"].as_str(), fields["content-type"].as_str()),
        (r#"{"number":42}"#, "application/json")
    );
    assert_eq!(fields["duly-attempt"], "1");
    let (due, at): (u64, u64) =
        (fields["duly-due"].parse().unwrap(), id.as_str().split_once('-').unwrap().0.parse().unwrap());
    assert!(due.abs_diff(at) < 60_000, "{due} {at}");
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_values_are_two_entries() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    for _ in 0..2 {
        mq.send("order.placed", &Order { number: 42 }).await.unwrap();
    }
    let there = entries(&redis, "order.placed");
    assert_eq!(there.len(), 2);
    assert_ne!(there[0]["duly-id"], there[1]["duly-id"]);
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_trimmed_only_if_a_length_is_set() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "stream-node-max-entries", "10"]);
    for (event, max_len) in [("long", None), ("short", Some(20))] {
        let mq = connect(&redis, Settings { max_len, ..Settings::default() }).await;
        for number in 0..100 {
            mq.send(event, &Order { number }).await.unwrap();
        }
        mq.shutdown().await.unwrap();
    }
    assert_eq!(redis.run::<usize>(&["XLEN", "long"]), 100);
    assert!((20..40).contains(&redis.run::<usize>(&["XLEN", "short"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_say_whether_it_may_have_been_done() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mq = connect(&redis, Settings::default()).await;
    assert!(matches!(mq.send("a{b}", &1).await, Err(Error::Invalid(_))));
    redis.run::<()>(&["SET", "text", "no stream"]);
    assert!(matches!(mq.send("text", &1).await, Err(Error::Refused(_))));
    redis.kill();
    assert!(matches!(mq.send("order", &1).await, Err(Error::Unreachable(_) | Error::Unanswered(_))));
    let _ = mq.shutdown().await;
    assert!(matches!(mq.send("order", &1).await, Err(Error::Closed)));
    assert!(matches!(RedisMq::connect(&redis.url()).await, Err(Error::Unreachable(_))));
    assert!(matches!(RedisMq::connect("localhost").await, Err(Error::Invalid(_))));
}
